"""trainers.verl_backend.cpu."""
