"""The record of rollouts, groups and their tokens."""
