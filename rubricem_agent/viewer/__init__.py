"""Pages for people: what a run, an ablation or an episode came to."""
