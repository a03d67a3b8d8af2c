"""rubricem_agent.evals.benchmarks."""
