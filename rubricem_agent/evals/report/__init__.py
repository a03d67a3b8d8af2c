"""Runs as they are shown: beside the paper's rows, with mode, uncertainty, exclusions and cost."""
