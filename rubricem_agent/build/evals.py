"""Builds and drives evaluations: the place that knows the files, the policies, the judges and the folders.

Exports runs as logs of Inspect, where its package is installed.

Builds who answers: a policy with its prompt and its memory, the almanac's expert, or a file of answers.

One run in several processes over a Ray cluster: each part with logs of its own, which the run then takes over.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rubricem_agent.build.eval_inputs import HUB
from rubricem_agent.build.eval_plan import (
    PlannedEvaluation,
    copy_answers,
    plan_run,
    read_logs,
    read_parts,
    read_scores,
    reload_benchmark,
    take_over_parts,
    write_scores,
)
from rubricem_agent.build.memory import build_injector, open_existing_bank
from rubricem_agent.build.models import build_judge, build_policy
from rubricem_agent.build.tools import open_tools
from rubricem_agent.config import (
    EXPERT,
    BankConfig,
    EvalConfig,
    JudgeConfig,
    PolicyConfig,
    Style,
    ToolsConfig,
    default_judges,
    load_tools_config,
)
from rubricem_agent.evals.answers import (
    Answerer,
    EpisodeAnswerer,
    GivenAnswers,
    LimitedToolbox,
    References,
    Reuse,
    cross_references,
    expert_policy,
    no_references,
    read_page,
    within_references,
)
from rubricem_agent.evals.base import EvaluationMode
from rubricem_agent.evals.manifest import ANSWERS_FILE, VERDICTS_FILE, read_manifest, settle_manifest
from rubricem_agent.evals.records import AnswerRecord, Budget, Journal, VerdictRecord
from rubricem_agent.evals.runner import CaseJudge, Listener, Runner, RunOutcome, RunPhase, case_keys
from rubricem_agent.evals.scores import Logs, Scores, score_run
from rubricem_agent.evals.grading import Loaded
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.policy.base import Policy
from rubricem_agent.prompting import PromptStyle, agent_prompt
from rubricem_agent.reflection.candidates import PolicyCandidates
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import Setting
from rubricem_env.domain.errors import ConfigError, MissingExtraError, UsageError
from rubricem_env.judge.base import ReflectionJudge
from rubricem_env.judge.rules_judge import RulesJudge
from rubricem_env.llm.base import ChatModel
from rubricem_env.llm.limits import Timing
from rubricem_env.llm.usage import SpendLimits, Meter
from rubricem_env.tools.base import FETCH_PAGE, Toolbox
from rubricem_env.world.almanac import load_questions, shipped_questions_path


def export_inspect_log(folder: Path, out: Path) -> None:
    """Write the run of a folder as one log.

    Raises:
        MissingExtraError: inspect-ai is not installed.
        UsageError: the file has neither of the two endings that Inspect reads.
    """
    if out.suffix not in (".eval", ".json"):
        raise UsageError(f"--out is {out}; Inspect reads files that end in .eval or .json.")
    try:
        from rubricem_agent.evals.inspect_export import write_inspect_log
    except ModuleNotFoundError as cause:
        raise MissingExtraError("inspect-ai", "eval", "a log for `inspect view`") from cause
    manifest = read_manifest(folder)
    write_inspect_log(
        out, reload_benchmark(folder, manifest), scores=read_scores(folder), answers=read_logs(folder).answers
    )


_STYLES: Mapping[Style, PromptStyle] = MappingProxyType(
    {Style.SCAFFOLD: PromptStyle.SCAFFOLD, Style.REACT: PromptStyle.REACT}
)


class OpenAnswerer(NamedTuple):
    """Who answers, and by what that is accounted."""

    answerer: Answerer
    meter: Meter


@asynccontextmanager
async def open_answerer(
    config: EvalConfig, toolbox: Toolbox, *, given: GivenAnswers | None, environ: Mapping[str, str]
) -> AsyncIterator[OpenAnswerer]:
    """Who the settings name, or `given`; closed on the way out. Where only verdicts are made, nobody has to answer.

    Raises:
        UsageError: a key, a file or a package is missing.
    """
    if config.stage is RunPhase.VERDICTS:
        given = GivenAnswers("nobody", {})
    opened = OpenAnswerer(given, Meter()) if given is not None else _open(config, toolbox, environ=environ)
    try:
        yield opened
    finally:
        await opened.answerer.aclose()


def _open(config: EvalConfig, toolbox: Toolbox, *, environ: Mapping[str, str]) -> OpenAnswerer:
    settings = PolicyConfig(policy="scripted" if config.policy == EXPERT else config.policy)
    settings = settings.model_copy(update={"ceilings": SpendLimits(dollars=config.budget), "retry": config.retry})
    built = build_policy(settings, environ)
    policy: Policy = _expert(config) if config.policy == EXPERT else built.policy
    setting = Setting(policy, toolbox, sampling=settings.sampling)
    answerer = EpisodeAnswerer(
        setting,
        agent_prompt(toolbox.names, style=_STYLES[config.style]),
        references=_references(config, policy),
        attempts=config.attempts,
        seed=config.seed,
    )
    return OpenAnswerer(answerer, built.meter)


def _expert(config: EvalConfig) -> Policy:
    path = Path(config.data) if config.data else shipped_questions_path()
    return expert_policy(load_questions(path), is_flat=config.style is Style.REACT)


def _references(config: EvalConfig, policy: Policy) -> References:
    injector = build_injector(BankConfig(), policy.count_tokens)
    if config.reuse is Reuse.CROSS and config.bank is not None:
        return partial(cross_references, bank=open_existing_bank(config.bank, embeds=True), injector=injector)
    if config.reuse is Reuse.WITHIN:
        return partial(
            within_references, open_bank=_empty_bank, open_reflector=_reflector_of(policy), injector=injector
        )
    return no_references


def _empty_bank() -> RubricBank:
    """For one example: its lesson is found by the question's key, so that any embedder will do."""
    return RubricBank.in_memory(HashingEmbedder())


def _reflector_of(policy: Policy) -> Callable[[RubricBank], Reflector]:
    # The judge is never asked: reflections at inference are unjudged.
    judge: ReflectionJudge = RulesJudge()
    return lambda bank: Reflector(PolicyCandidates(policy), judge, bank)


SHARDS = "shards"
"""The folder of the parts of a run that was split."""


class FinishedRun(NamedTuple):
    """How a run came out, and its numbers."""

    folder: Path
    outcome: RunOutcome
    scores: Scores


class _Judges(NamedTuple):
    models: tuple[ChatModel, ...]
    meter: Meter


async def run_evaluation(
    planned: PlannedEvaluation,
    environ: Mapping[str, str] = os.environ,
    *,
    listener: Listener = lambda phase, failure: None,
) -> FinishedRun:
    """Do what is missing of a run, then compute its numbers.

    Raises:
        UsageError: the folder holds a run of another kind, a key is missing, or another run is writing.
    """
    config = planned.config
    folder = _shard_folder(config)
    manifest = settle_manifest(folder, planned.manifest)
    with_answers = folder / ANSWERS_FILE
    if config.answers_from is not None:
        copy_answers(config.answers_from, planned.manifest, target=with_answers)
    answers = Journal.open(with_answers, AnswerRecord)
    verdicts = Journal.open(folder / VERDICTS_FILE, VerdictRecord)
    try:
        parts = read_parts(folder / SHARDS, planned.manifest)
        if planned.given is not None:
            for log in (answers, *(part.answers for part in parts)):
                planned.given.refuse_changed(log.records)
        take_over_parts(parts, Logs(answers, verdicts))
        outcome = await _drive(planned, environ, logs=Logs(answers, verdicts), listener=listener)
        scores = score_run(planned.loaded, manifest, logs=Logs(answers, verdicts))
    finally:
        answers.close()
        verdicts.close()
    write_scores(folder, scores)
    return FinishedRun(folder, outcome, scores)


async def _drive(
    planned: PlannedEvaluation, environ: Mapping[str, str], *, logs: Logs, listener: Listener
) -> RunOutcome:
    config, loaded = planned.config, planned.loaded
    judges = _build_judges(config, loaded, environ=environ)
    async with AsyncExitStack() as stack:
        for model in judges.models:
            stack.push_async_callback(model.aclose)
        toolbox = await stack.enter_async_context(_open_search(config, environ))
        opened = await stack.enter_async_context(open_answerer(config, toolbox, given=planned.given, environ=environ))
        budget = Budget(config.budget, spent_before=_spent_before(config, logs), meters=(judges.meter, opened.meter))
        timing = Timing.real(config.seed)
        runner = Runner(
            loaded,
            logs.answers,
            answerer=opened.answerer,
            judges=_case_judges(planned, judges, logs=logs, timing=timing, budget=budget, toolbox=toolbox),
            limits=config.limits,
            check_budget=budget.check,
            clock=time.monotonic,
            listener=listener,
        )
        number, total = config.shard
        keys = case_keys(planned.manifest.inputs.ids, config.epochs)[number - 1 :: total]
        return await runner.run(keys, config.stage)


def _spent_before(config: EvalConfig, logs: Logs) -> float:
    """In dollars. Answers that were taken over were paid for by another run."""
    answers = () if config.answers_from is not None else logs.answers.records
    return sum(one.dollars for one in answers) + sum(one.dollars for one in logs.verdicts.records)


def _case_judges(
    planned: PlannedEvaluation, judges: _Judges, *, logs: Logs, timing: Timing, budget: Budget, toolbox: Toolbox
) -> tuple[CaseJudge, ...]:
    """One for each judge; without a judge one that is never asked."""
    names = planned.manifest.judges or ("none",)
    models: tuple[ChatModel | None, ...] = judges.models or (None,)
    read = partial(read_page, toolbox) if FETCH_PAGE in toolbox.names else None
    slots = asyncio.Semaphore(planned.config.limits.judge)
    if planned.config.fact and read is None and planned.config.mode is not EvaluationMode.DRTULU:
        raise ConfigError(
            "--fact reads the pages that a report cites, and these tools cannot. Give --tools a file with "
            'backend = "web" and fetch_page = true, or use --mode drtulu, which checks against the snippets shown.'
        )
    return tuple(
        CaseJudge(
            name,
            model,
            benchmark=planned.loaded.name,
            rules=planned.loaded.rules,
            journal=logs.verdicts,
            retry=planned.config.retry,
            timing=timing,
            slots=slots,
            check_budget=budget.check,
            read_page=read,
        )
        for name, model in zip(names, models, strict=True)
    )


def _build_judges(config: EvalConfig, loaded: Loaded, *, environ: Mapping[str, str]) -> _Judges:
    named = config.judges or default_judges(loaded.rules)
    if not loaded.rules.judge or not named or config.stage.value == "answers":
        return _Judges((), Meter())
    ceilings = SpendLimits(dollars=config.budget)
    built = build_judge(JudgeConfig(judge=named[0], also=named[1:], ceilings=ceilings), environ)
    return _Judges(built.models, built.meter)


def _shard_folder(config: EvalConfig) -> Path:
    number, total = config.shard
    return config.folder if total == 1 else config.folder / SHARDS / f"{number}-of-{total}"


@asynccontextmanager
async def _open_search(config: EvalConfig, environ: Mapping[str, str]) -> AsyncIterator[Toolbox]:
    tools = load_tools_config(config.tools) if config.tools is not None else ToolsConfig()
    async with open_tools(tools, environ) as opened:
        yield LimitedToolbox(opened.toolbox, asyncio.Semaphore(config.limits.search))


def run_over_ray(config: EvalConfig, shards: int) -> FinishedRun:
    """Every part as one task of a cluster that sees the same folders; then the run itself, with what they did.

    A part that dies is tried again by Ray, and goes on from its own logs. What no part did is done here.

    Raises:
        MissingExtraError: ray is not installed.
    """
    try:
        ray = import_module("ray")
    except ModuleNotFoundError as cause:
        raise MissingExtraError("ray", "verl", "sharding an evaluation over a cluster") from cause
    anywhere = with_absolute_paths(config)
    plan_run(anywhere)
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    part = ray.remote(max_retries=3)(run_part)
    text = anywhere.model_dump_json()
    ray.get([part.remote(text, number, shards) for number in range(1, shards + 1)])
    return asyncio.run(run_evaluation(plan_run(config)))


def run_part(config: str, number: int, *, shards: int) -> None:
    """One part, from settings as JSON: what a worker is sent."""
    # Not strict: JSON has lists for tuples.
    whole = EvalConfig.model_validate_json(config, strict=False)
    asyncio.run(run_evaluation(plan_run(whole.model_copy(update={"shard": (number, shards)}))))


def with_absolute_paths(config: EvalConfig) -> EvalConfig:
    """The same run from any working directory. The policy's name stays as it is: it names the agent."""
    is_here = bool(config.data) and not config.data.startswith(HUB)
    return config.model_copy(
        update={
            "out": config.folder.resolve(),
            "data": str(Path(config.data).expanduser().resolve()) if is_here else config.data,
        }
    )
