"""A judge without a model: criteria that can be read off the trajectories themselves, deterministic and free."""
