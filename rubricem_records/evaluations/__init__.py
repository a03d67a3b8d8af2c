"""An evaluation's manifest, answers, verdicts, scores and statistics."""
