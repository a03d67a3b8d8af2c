"""The benchmarks, one file each: its file format, its arithmetic, its grader."""
