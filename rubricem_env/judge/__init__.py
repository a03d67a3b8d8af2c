"""Groups of trajectories in, stage scores with reasons out: rubrics that evolve, judges that apply them, audits of both."""
