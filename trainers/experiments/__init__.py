"""trainers.experiments."""
