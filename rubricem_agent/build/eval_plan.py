"""Plans evaluations: reads the files, chooses the examples, and writes down what the run will be."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.build.eval_files import data_path, read_seen
from rubricem_agent.config.evals import EvalConfig, default_judges
from rubricem_agent.evals.loading import Loaded, load_benchmark
from rubricem_agent.evals.rules import rules_for
from rubricem_agent.evals.run.manifest import Agent, Inputs, Manifest, judge_model
from rubricem_agent.evals.run.rehearsal import Estimate, rehearse
from rubricem_agent.evals.subset import Choice, Subset, choose, find_seen, without_seen
from rubricem_agent.evals.suite import DataPaths, find_entry
from rubricem_env import __version__
from rubricem_env.domain.errors import ConfigError


class PlannedRun(NamedTuple):
    """A run before anything is asked."""

    config: EvalConfig
    loaded: Loaded
    manifest: Manifest

    def estimate(self) -> list[Estimate]:
        """Calls and money, for a dry run."""
        inputs = self.manifest.inputs
        return rehearse(
            self.loaded,
            inputs.ids,
            epochs=self.config.epochs,
            policy=judge_model(self.config.policy) if self.config.asks_a_model else None,
            judges=self.manifest.judges,
        )


def plan_run(config: EvalConfig, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> PlannedRun:
    """Read the files, choose the examples, and say what the run will be.

    Raises:
        UsageError: in one sentence, with the way out.
    """
    config.check()
    find_entry(config.benchmark)
    rules = rules_for(config.benchmark, config.mode)
    paths = DataPaths(data_path(config.data), config.criteria, config.references)
    loaded = load_benchmark(config.benchmark, paths, rules=rules, any_version=config.any_version, with_fact=config.fact)
    manifest = Manifest(
        benchmark=config.benchmark,
        mode=config.mode,
        rules=rules,
        judges=_judge_names(config, loaded),
        prompt_hash=loaded.grader.prompt_hash,
        inputs=_inputs(config, loaded),
        agent=_agent(config),
        epochs=config.epochs,
        seed=config.seed,
        created=now().isoformat(timespec="seconds"),
        code=__version__,
    )
    return PlannedRun(config, loaded, manifest)


def beside_sha256(*paths: Path | None) -> str:
    """One hash of the files beside the data file, such as criteria; empty where there are none."""
    contents = [path.read_bytes() for path in paths if path is not None]
    return hashlib.sha256(b"".join(contents)).hexdigest() if contents else ""


def _inputs(config: EvalConfig, loaded: Loaded) -> Inputs:
    subset = _subset(config, loaded)
    return Inputs(
        path=str(loaded.source.path),
        sha256=loaded.source.sha256,
        rows=loaded.source.rows,
        criteria=str(config.criteria or ""),
        references=str(config.references or ""),
        beside_sha256=beside_sha256(config.criteria, config.references),
        any_version=config.any_version,
        with_fact=config.fact,
        ids=subset.ids,
        subset=subset.rule,
        left_out=subset.left_out,
    )


def _subset(config: EvalConfig, loaded: Loaded) -> Subset:
    subset = choose(loaded, Choice(config.subset, config.limit, config.ids))
    for path in config.seen:
        seen = find_seen(loaded.examples, read_seen(path))
        subset = without_seen(subset, seen, drops=config.drop_seen, where=str(path))
    return subset


def _judge_names(config: EvalConfig, loaded: Loaded) -> tuple[str, ...]:
    """Models, not addresses: the same model at another address is the same judge."""
    if not loaded.rules.judge:
        return ()
    names = tuple(judge_model(judge) for judge in config.judges or default_judges(loaded.rules))
    if "rules" in names:
        raise ConfigError("benchmarks are judged by models. Use --judge gemini:MODEL or openai:MODEL@URL.")
    if len(set(names)) < len(names):
        raise ConfigError(f"a judge is named twice in {', '.join(names)}; agreement is between different judges.")
    return names


def _agent(config: EvalConfig) -> Agent:
    return Agent(
        policy=config.policy,
        style=config.style.value,
        search=str(config.tools or "offline corpus"),
        reuse=config.reuse.value,
        bank=str(config.bank or ""),
        attempts=config.attempts,
    )
