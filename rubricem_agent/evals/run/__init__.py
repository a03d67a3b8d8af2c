"""Running a benchmark: answers and verdicts in append-only logs, from which every number is computed anew."""
