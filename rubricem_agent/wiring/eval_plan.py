"""Plans an evaluation: reads its files, chooses its examples, and describes the run before its first call."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.config.tools import ToolsConfig, parse_tools, shown_tools
from rubricem_agent.evals.benchmark import Benchmark, Loaded
from rubricem_agent.evals.dataset import DataPaths
from rubricem_agent.evals.given_answers import GivenAnswers
from rubricem_agent.evals.rehearsal import rehearse
from rubricem_agent.evals.seen_examples import find_seen, seen_keys, without_seen
from rubricem_agent.evals.subsets import choose, refuse_incomplete
from rubricem_agent.evals.suite import find_benchmark, load_benchmark, rules_for
from rubricem_agent.model_names import GIVEN
from rubricem_agent.wiring.eval_config import EvalConfig, effort_of, fact_judges
from rubricem_agent.wiring.eval_models import judge_names, model_names, prices_of
from rubricem_agent.wiring.hub_files import fetched
from rubricem_agent.wiring.input_hashes import (
    bank_sha256,
    beside_sha256,
    policy_sha256,
    prompts_sha256,
    scaffold_sha256,
    search_sha256,
)
from rubricem_agent.wiring.memory import SNAPSHOT_SUFFIX, open_existing_bank
from rubricem_agent.wiring.question_tools import OFFLINE, tools_of_benchmark
from rubricem_env import __version__
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_env.llm.prices import SHUT_DOWN, Price
from rubricem_env.llm.usage import Usage
from rubricem_records.evaluations.manifest import Agent, EvaluationManifest, Inputs, judge_model, read_manifest
from rubricem_records.evaluations.scores import ModelCost
from rubricem_records.rollouts.sampling import Sampling


def read_seen(path: Path) -> Collection[str]:
    """The keys of the questions that training has seen.

    The path is a file of JSON lines, the folder of a rubric bank, or the bank.npz of a checkpoint.
    """
    if path.is_dir() or path.suffix == SNAPSHOT_SUFFIX:
        return frozenset(item.key for item in open_existing_bank(path, embeds=False).items())
    return seen_keys(path)


def search_costs(tools: ToolsConfig, calls: int) -> list[ModelCost]:
    """The cost of so many searches, each by the dearer tool and none from the cache; empty where no search is paid."""
    if not tools.asks_engines:
        return []
    dearer = max((tools.google_search, tools.snippet_search), key=lambda search: search.dollars)
    return [
        ModelCost(
            stage="searches, at most",
            model=dearer.engine,
            usage=Usage(calls=calls),
            dollars=calls * dearer.dollars,
            is_priced=True,
        )
    ]


class PlannedEvaluation(NamedTuple):
    """A run before its first call."""

    config: EvalConfig
    loaded: Loaded
    manifest: EvaluationManifest
    judge_models: tuple[str, ...]
    prices: Mapping[str, Price]
    """The list, and what the settings say in its place."""
    tools: ToolsConfig
    given: GivenAnswers | None = None
    """The answers, where they come from a file."""

    def estimate(self) -> list[ModelCost]:
        """Calls and money, for a dry run."""
        is_paid = self.config.stage != "verdicts" and self.config.asks_a_model
        policy = judge_model(self.config.policy) if is_paid else None
        ids = self.manifest.inputs.ids
        epochs = self.config.epochs
        costs = rehearse(
            self.loaded,
            ids,
            epochs=epochs,
            policy=policy,
            judges=self.judge_models,
            prices=self.prices,
            limits=self.config.limits,
            context=self.config.context,
        )
        # Every answer makes all its calls.
        searched = search_costs(self.tools, self.config.limits.max_calls * len(ids) * epochs) if policy else []
        return [*costs[:1], *searched, *costs[1:]]

    @property
    def headline(self) -> str:
        """The run in one line: what is measured, by whose rules, on which examples, and what is searched."""
        manifest = self.manifest
        searched = manifest.agent.search
        search = f"searches: {searched}" if searched else "answers as given"
        return (
            f"{manifest.title}, {manifest.label}, {len(manifest.inputs.ids)} examples ({manifest.inputs.subset}); "
            f"{search}"
        )

    def notes(self) -> list[str]:
        """Warnings about settings without effect, as sentences."""
        notes = []
        if self.config.makes_answers and self.tools.searches == "almanac" and not self.loaded.benchmark.is_almanac:
            notes.append(
                f"{self.manifest.title} is answered from the almanac, an invented world: the number says nothing of "
                "what the policy finds in the real one."
            )
        if self.config.prompts and not self.loaded.grader.prompts:
            notes.append(
                f"{self.manifest.benchmark} is scored without a judge in mode {self.manifest.mode}: --prompts does "
                "nothing."
            )
        judge = self.loaded.rules.judge
        day, successor = SHUT_DOWN.get(judge, ("", ""))
        if day and not self.config.judges and self.config.stage != "answers":
            is_gone = day <= datetime.now(UTC).date().isoformat()
            today = self.loaded.benchmark.leaderboard
            newer = f", or take --mode leaderboard, judged by {today.judge} since {today.since}" if today else ""
            when = "was shut down on" if is_gone else "will be shut down on"
            notes.append(
                f"the judge {judge} {when} {day} ({successor} is its successor): name another with --judge{newer}."
            )
        wanted = self.loaded.benchmark.drtulu_ids
        if wanted and self.config.mode == "drtulu" and not (self.config.ids or self.config.answers_from):
            notes.append(
                f"DR Tulu runs a fixed set of examples of {self.manifest.benchmark}: --ids {wanted} chooses it."
            )
        if self.config.judges and not self.loaded.rules.judge:
            notes.append(
                f"{self.manifest.benchmark} is scored without a judge in mode {self.manifest.mode}: "
                f"--judge {', '.join(self.config.judges)} is not asked."
            )
        if self.config.sampling != Sampling() and not self.config.asks_a_model:
            notes.append(
                f"{self.config.policy} draws no tokens: --temperature, --top-p and --max-turn-tokens do nothing."
            )
        return notes


def plan_run(config: EvalConfig) -> PlannedEvaluation:
    """Read the files, choose the examples, and describe the run.

    Raises:
        UsageError: an input is wrong or missing, or two settings contradict each other.
    """
    config = config.preset()
    config.check()
    benchmark = find_benchmark(config.benchmark)
    if config.scaffold != DEEP_RESEARCH.name and not benchmark.takes_any_stages:
        raise ConfigError(
            f"--scaffold is {config.scaffold}, and {benchmark.name} is answered in the stages of {DEEP_RESEARCH.name}, "
            "which its format is made for. Evaluate questions of your own (`rubricem eval own`), or compare attempts "
            "with `rubricem judge --scaffold`."
        )
    rules = rules_for(config.benchmark, config.mode)
    source = read_manifest(config.answers_from) if config.answers_from is not None else None
    if source is not None:
        config = _judging_only(config, source)
    tools = _tools(config, benchmark)
    policy, judges = model_names(config, rules)
    prices = prices_of(config, policy, *judges, *map(judge_model, fact_judges(config, rules)))
    paths = DataPaths(fetched(config.data) if config.data else None, config.criteria, config.references)
    loaded = load_benchmark(
        config.benchmark,
        paths,
        rules=rules,
        any_version=config.any_version,
        with_fact=config.fact,
        prompts=config.prompts,
    )
    guidance = benchmark.guidance if config.guidance else ""
    manifest = EvaluationManifest(
        benchmark=config.benchmark,
        title=loaded.benchmark.title,
        mode=config.mode,
        rules=rules,
        judges=judge_names(config, rules),
        judge_effort=effort_of(config, rules) if rules.judge else "",
        prompt_hash=loaded.grader.prompt_hash,
        prompts=config.prompts if loaded.grader.official else "",
        inputs=_inputs(config, loaded, source),
        agent=source.agent if source is not None else _agent(config, tools, guidance=guidance),
        epochs=config.epochs,
        seed=config.seed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        code=__version__,
    )
    given = None
    if config.policy.startswith(GIVEN) and config.stage != "verdicts":
        given = GivenAnswers.read(Path(config.policy.removeprefix(GIVEN)))
        given.refuse_unknown([example.id for example in loaded.examples], ids=loaded.benchmark.ids)
    return PlannedEvaluation(config, loaded, manifest, judges, prices, tools, given)


def _tools(config: EvalConfig, benchmark: Benchmark) -> ToolsConfig:
    """The tools of a run. Where nobody answers they read pages alone, and any will do."""
    return tools_of_benchmark(config.tools, benchmark) if config.makes_answers else parse_tools(config.tools or OFFLINE)


class _AnswerOption(NamedTuple):
    """An option that describes how answers are made."""

    name: str
    default: object
    given: object
    recorded: object
    """The value of the run that made the answers."""


def _judging_only(config: EvalConfig, source: EvaluationManifest) -> EvalConfig:
    """The settings of a run that judges the answers of `source`, with that run's policy and epochs.

    Raises:
        ConfigError: they name another benchmark, or describe the answers wrongly.
    """
    if source.benchmark != config.benchmark:
        raise ConfigError(
            f"{config.answers_from} is a run of {source.benchmark}; its answers cannot be judged as those of "
            f"{config.benchmark}. Name a run of {config.benchmark} with --answers-from."
        )
    agent = source.agent
    default = EvalConfig(benchmark=config.benchmark)
    options = [
        _AnswerOption("policy", default.policy, config.policy, agent.policy),
        _AnswerOption("style", default.style, config.style, agent.style),
        _AnswerOption("agent-prompts", "", prompts_sha256(config.agent_prompts), agent.prompts_sha256),
        _AnswerOption("reuse", default.reuse, config.reuse, agent.reuse),
        _AnswerOption("bank", "", str(config.bank or ""), agent.bank),
        _AnswerOption("attempts", default.attempts, config.attempts, agent.attempts),
        _AnswerOption("effort", "", config.effort, agent.effort),
    ]
    for name, value in default.sampling:
        recorded = getattr(agent.sampling, name, value)
        options.append(_AnswerOption(name.replace("_", "-"), value, getattr(config.sampling, name), recorded))
    for group in ("limits", "context"):
        given, recorded, usual = (dict(getattr(holder, group)) for holder in (config, agent, default))
        options += [
            _AnswerOption(name.replace("_", "-"), usual[name], given[name], recorded[name]) for name in recorded
        ]
    options.append(_AnswerOption("epochs", default.epochs, config.epochs, source.epochs))
    if not config.fact:  # FACT may read pages with other tools
        options.append(_AnswerOption("tools", "", shown_tools(config.tools), agent.tools))
    for option in options:
        if option.given not in (option.default, option.recorded):
            raise ConfigError(
                f"--{option.name} is {option.given}; the answers of {config.answers_from} were made with "
                f"{option.recorded or 'none'}, and are judged as they are. Leave --{option.name} out."
            )
    return config.model_copy(update={"policy": agent.policy, "epochs": source.epochs, "stage": "verdicts"})


def _inputs(config: EvalConfig, loaded: Loaded, source: EvaluationManifest | None) -> Inputs:
    ids = str(config.ids or "")
    if loaded.rules.mode == "paper" and config.subset == "mode" and config.limit is None and source is None:
        ids = ids or loaded.benchmark.drtulu_ids
    inputs = choose(loaded, config.subset, limit=config.limit, ids_file=fetched(ids) if ids else None)
    if source is not None:
        inputs = _answered(config, source.inputs, chosen=inputs)
    for path in config.seen:
        seen = find_seen(loaded.examples, read_seen(path))
        inputs = without_seen(inputs, seen, drops=config.drop_seen, where=str(path))
    refuse_incomplete(loaded, inputs.ids)
    return inputs.model_copy(
        update={
            "criteria": str(config.criteria or ""),
            "references": str(config.references or ""),
            "beside_sha256": beside_sha256(config.criteria, config.references),
            "any_version": config.any_version,
            "with_fact": config.fact,
        }
    )


def _answered(config: EvalConfig, source: Inputs, *, chosen: Inputs) -> Inputs:
    """The examples that were answered, or those of them that the user has chosen.

    Raises:
        UsageError: the answers are to another data file, or an example was chosen that was not answered.
    """
    if chosen.sha256 != source.sha256:
        raise UsageError(
            f"{chosen.path} has the sha256 {chosen.sha256[:12]}; the answers of {config.answers_from} are to the "
            f"examples of {source.sha256[:12]}, which was at {source.path}. Give that file with --data."
        )
    if config.limit is None and config.ids is None and config.subset == "mode":
        return chosen.model_copy(update={"ids": source.ids, "subset": source.subset, "left_out": source.left_out})
    missing = [example_id for example_id in chosen.ids if example_id not in set(source.ids)]
    if missing:
        raise UsageError(
            f"{len(missing)} of the {len(chosen.ids)} examples of '{chosen.subset}' are not in {config.answers_from}, "
            f"the first being {missing[0]!r}; it is about '{source.subset}'. Leave --limit, --subset and --ids out "
            "to judge all that it has answered."
        )
    return chosen


def _agent(config: EvalConfig, tools: ToolsConfig, *, guidance: str) -> Agent:
    return Agent(
        policy=config.policy,
        policy_sha256="" if config.stage == "verdicts" else policy_sha256(config.policy),
        style=config.style,
        scaffold=config.scaffold,
        scaffold_sha256=scaffold_sha256(config.scaffold),
        prompts_sha256=prompts_sha256(config.agent_prompts, config.stage_set),
        tools=shown_tools((config.tools or OFFLINE) if config.makes_answers else config.tools),
        search=tools.searched if config.makes_answers else "",
        search_sha256=search_sha256(config.tools),
        reuse=config.reuse,
        bank=str(config.bank or ""),
        bank_sha256=bank_sha256(config.bank if config.reuse == "cross" else None),
        attempts=config.attempts,
        guidance=guidance,
        effort=config.effort,
        limits=config.limits,
        context=config.context,
        sampling=config.sampling if config.asks_a_model and config.stage != "verdicts" else None,
    )
