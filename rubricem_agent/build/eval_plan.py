"""Plans evaluations: reads the files, chooses the examples, and writes down what the run will be."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.build.eval_answers import judging_only, refuse_other_data, subset_of
from rubricem_agent.build.eval_files import data_path, read_seen
from rubricem_agent.build.eval_models import AskedModels, asked_models, judge_names
from rubricem_agent.build.eval_sources import bank_sha256, beside_sha256, search_sha256
from rubricem_agent.config.evals import GIVEN, EvalConfig
from rubricem_agent.evals.answering.given import GivenAnswers
from rubricem_agent.evals.answering.reuse import Reuse
from rubricem_agent.evals.loading import Loaded, load_benchmark
from rubricem_agent.evals.rules import rules_for
from rubricem_agent.evals.run.manifest import Agent, Inputs, Manifest, judge_model, read_manifest
from rubricem_agent.evals.run.rehearsal import Estimate, rehearse
from rubricem_agent.evals.run.runner import Stage
from rubricem_agent.evals.subset import Choice, Subset, choose, find_seen, without_seen
from rubricem_agent.evals.suite import DataPaths, find_entry
from rubricem_env import __version__


class PlannedRun(NamedTuple):
    """A run before anything is asked."""

    config: EvalConfig
    loaded: Loaded
    manifest: Manifest
    asked: AskedModels
    given: GivenAnswers | None = None
    """The answers, where they come from a file."""

    def estimate(self) -> list[Estimate]:
        """Calls and money, for a dry run."""
        inputs = self.manifest.inputs
        return rehearse(
            self.loaded,
            inputs.ids,
            epochs=self.config.epochs,
            policy=self._policy_estimated,
            judges=self.asked.judges,
        )

    def notes(self) -> tuple[str, ...]:
        """What of the settings will not do what one may think, in sentences."""
        notes = []
        if self.config.judges and not self.loaded.rules.judge:
            notes.append(
                f"{self.manifest.benchmark} is scored without a judge in mode {self.manifest.mode.value}: "
                f"--judge {', '.join(self.config.judges)} is not asked."
            )
        if self.config.budget is not None and self.asked.unpriced:
            notes.append(
                f"no price is known of {', '.join(self.asked.unpriced)}: --budget counts the calls of "
                f"{', '.join(self.asked.priced)} alone."
            )
        return tuple(notes)

    @property
    def _policy_estimated(self) -> str | None:
        if self.config.stage is Stage.VERDICTS or not self.config.asks_a_model:
            return None
        return judge_model(self.config.policy)


def plan_run(config: EvalConfig, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> PlannedRun:
    """Read the files, choose the examples, and say what the run will be.

    Raises:
        UsageError: in one sentence, with the way out.
    """
    config.check()
    find_entry(config.benchmark)
    rules = rules_for(config.benchmark, config.mode)
    source = read_manifest(config.answers_from) if config.answers_from is not None else None
    if source is not None:
        config = judging_only(config, source)
    asked = asked_models(config, rules)
    paths = DataPaths(data_path(config.data), config.criteria, config.references)
    loaded = load_benchmark(config.benchmark, paths, rules=rules, any_version=config.any_version, with_fact=config.fact)
    manifest = Manifest(
        benchmark=config.benchmark,
        mode=config.mode,
        rules=rules,
        judges=judge_names(config, rules),
        prompt_hash=loaded.grader.prompt_hash,
        inputs=_inputs(config, loaded, source),
        agent=source.agent if source is not None else _agent(config),
        epochs=config.epochs,
        seed=config.seed,
        created=now().isoformat(timespec="seconds"),
        code=__version__,
    )
    return PlannedRun(config, loaded, manifest, asked, _given_answers(config, loaded))


def _given_answers(config: EvalConfig, loaded: Loaded) -> GivenAnswers | None:
    if not config.policy.startswith(GIVEN) or config.stage is Stage.VERDICTS:
        return None
    given = GivenAnswers.read(Path(config.policy.removeprefix(GIVEN)))
    given.refuse_unknown([example.id for example in loaded.examples], ids=find_entry(loaded.name).ids)
    return given


def _inputs(config: EvalConfig, loaded: Loaded, source: Manifest | None) -> Inputs:
    subset = _subset(config, loaded, source)
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


def _subset(config: EvalConfig, loaded: Loaded, source: Manifest | None) -> Subset:
    subset = choose(loaded, Choice(config.subset, config.limit, config.ids))
    if source is not None and config.answers_from is not None:
        refuse_other_data(config.answers_from, source, data=loaded.source)
        subset = subset_of(config, source, chosen=subset)
    for path in config.seen:
        seen = find_seen(loaded.examples, read_seen(path))
        subset = without_seen(subset, seen, drops=config.drop_seen, where=str(path))
    return subset


def _agent(config: EvalConfig) -> Agent:
    return Agent(
        policy=config.policy,
        style=config.style.value,
        search=str(config.tools or "offline corpus"),
        search_sha256=search_sha256(config.tools),
        reuse=config.reuse.value,
        bank=str(config.bank or ""),
        bank_sha256=bank_sha256(config.bank if config.reuse is Reuse.CROSS else None),
        attempts=config.attempts,
    )
