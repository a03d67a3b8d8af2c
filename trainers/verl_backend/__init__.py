"""The algorithm on veRL: Ray, FSDP and vLLM move the tensors, `rubricem_agent.learn` says what they are worth."""
