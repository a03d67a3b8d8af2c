"""What only a run on CPUs needs."""
