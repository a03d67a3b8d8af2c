"""What everything else talks about: stages, trajectories, calls, rubrics, scores, reflections. No behaviour, no I/O."""
