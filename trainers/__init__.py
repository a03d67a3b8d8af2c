"""Trainers: programs that turn judged rollouts into weight updates. They may import everything else."""
