"""The parts of `trainers/sft.py`, one file a noun."""
