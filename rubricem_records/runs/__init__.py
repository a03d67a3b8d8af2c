"""A training run's log, settings and expected curves."""
