"""Studies behind docs/arena.md and the shipped policy: they make, measure and draw. Not in the wheel."""
