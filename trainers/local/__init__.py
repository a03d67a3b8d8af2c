"""The algorithm in one process, on a CPU or one GPU."""
