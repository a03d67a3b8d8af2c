"""One number for each stage."""

StageScores = dict[str, float | None]
"""One number a stage by its name, in the order of the stages; null where there is none."""
