"""What models are told: prompts as files, and how they are filled."""
