"""The agent of RubricEM: policies, rollouts, memory, learning and the command line."""
