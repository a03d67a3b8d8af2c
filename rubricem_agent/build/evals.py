"""Runs evaluations: opens the policy, tools and judges, resumes from the logs, shards over Ray, exports to Inspect."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.build.eval_inputs import HUB
from rubricem_agent.build.eval_plan import (
    PlannedEvaluation,
    copy_answers,
    merge_parts,
    plan_run,
    read_logs,
    read_parts,
    read_scores,
    reload_benchmark,
    write_scores,
)
from rubricem_agent.build.memory import build_injector, open_existing_bank
from rubricem_agent.build.models import build_judge, build_policy, requires_extra
from rubricem_agent.build.tools import open_tools
from rubricem_agent.config import (
    EXPERT,
    SCRIPTED,
    BankConfig,
    EvalConfig,
    JudgeConfig,
    PolicyConfig,
    ToolsConfig,
    default_judges,
    load_tools_config,
)
from rubricem_agent.evals.answers import (
    Answerer,
    GivenAnswers,
    LimitedToolbox,
    References,
    answer_in_episodes,
    cross_references,
    expert_policy,
    no_references,
    read_page,
    within_references,
)
from rubricem_agent.evals.base import EvaluationMode
from rubricem_agent.evals.grading import Loaded
from rubricem_agent.evals.manifest import ANSWERS_FILE, VERDICTS_FILE, read_manifest, settle_manifest
from rubricem_agent.evals.records import AnswerRecord, Journal, VerdictRecord, check_budget
from rubricem_agent.evals.runner import CaseJudge, Listener, Runner, case_keys
from rubricem_agent.evals.scores import Logs, Scores, score_run
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.policy.base import Policy
from rubricem_agent.prompting import agent_prompt
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import Setting
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.judge.rules_judge import RulesJudge
from rubricem_env.llm.base import ChatModel
from rubricem_env.llm.limits import Timing
from rubricem_env.llm.usage import Meter, SpendLimits
from rubricem_env.tools.base import FETCH_PAGE, Toolbox
from rubricem_env.world.almanac import load_questions, shipped_questions_path

SHARDS = "shards"
"""The folder of the parts of a split run."""


def export_inspect_log(folder: Path, out: Path) -> None:
    """Write a run as one log that Inspect reads.

    Raises:
        MissingExtraError: inspect-ai is not installed.
        UsageError: the file does not end in .eval or .json.
    """
    if out.suffix not in (".eval", ".json"):
        raise UsageError(f"--out is {out}; Inspect reads files that end in .eval or .json.")
    with requires_extra("eval", "a log for `inspect view`", package="inspect-ai"):
        from rubricem_agent.evals.inspect_export import write_inspect_log
    manifest = read_manifest(folder)
    loaded = reload_benchmark(folder, manifest)
    write_inspect_log(out, loaded, scores=read_scores(folder), answers=read_logs(folder)[0])


class FinishedRun(NamedTuple):
    """A run and its scores; the runner has what was done in this process."""

    folder: Path
    runner: Runner
    scores: Scores


async def run_evaluation(
    planned: PlannedEvaluation,
    environ: Mapping[str, str] = os.environ,
    *,
    listener: Listener = lambda phase, failure: None,
) -> FinishedRun:
    """Do what is missing of a run, then compute its scores.

    Raises:
        UsageError: the folder holds a different run, a key is missing, or another process writes to the run.
    """
    config = planned.config
    number, total = config.shard
    folder = config.folder if total == 1 else config.folder / SHARDS / f"{number}-of-{total}"
    manifest = settle_manifest(folder, planned.manifest)
    answers_file = folder / ANSWERS_FILE
    if config.answers_from is not None:
        copy_answers(config.answers_from, planned.manifest, target=answers_file)
    answers = Journal.open(answers_file, AnswerRecord)
    verdicts = Journal.open(folder / VERDICTS_FILE, VerdictRecord)
    logs = answers, verdicts
    try:
        parts = read_parts(folder / SHARDS, planned.manifest)
        if planned.given is not None:
            for log in (answers, *(part_answers for part_answers, _ in parts)):
                planned.given.refuse_changed(log.records)
        merge_parts(parts, logs)
        # The judges as the run recorded them: an earlier release wrote their models alone, and its verdicts have those.
        runner = await _drive(planned._replace(manifest=manifest), environ, logs=logs, listener=listener)
        scores = score_run(planned.loaded, manifest, logs=logs)
    finally:
        answers.close()
        verdicts.close()
    write_scores(folder, scores)
    return FinishedRun(folder, runner, scores)


async def _drive(
    planned: PlannedEvaluation, environ: Mapping[str, str], *, logs: Logs, listener: Listener
) -> Runner:
    config = planned.config
    answers, verdicts = logs
    models, judge_meter = _build_judges(config, planned.loaded, environ=environ)
    async with AsyncExitStack() as stack:
        for model in models:
            stack.push_async_callback(model.aclose)
        tools = load_tools_config(config.tools) if config.tools is not None else ToolsConfig()
        opened = await stack.enter_async_context(open_tools(tools, environ))
        toolbox = LimitedToolbox(opened.toolbox, asyncio.Semaphore(config.search_concurrency))
        answerer, meter = _build_answerer(config, toolbox, given=planned.given, environ=environ, stack=stack)
        # Answers that were copied were paid for by another run.
        paid = () if config.answers_from is not None else answers.records
        spent = sum(one.dollars for one in paid) + sum(one.dollars for one in verdicts.records)
        check = partial(check_budget, config.budget, spent_before=spent, meters=(judge_meter, meter))
        timing = Timing.real(config.seed)
        runner = Runner(
            planned.loaded,
            answers,
            answerer=answerer,
            judges=_build_case_judges(planned, models, verdicts=verdicts, timing=timing, check=check, toolbox=toolbox),
            concurrency=config.concurrency,
            check_budget=check,
            clock=time.monotonic,
            listener=listener,
        )
        number, total = config.shard
        keys = case_keys(planned.manifest.inputs.ids, config.epochs)[number - 1 :: total]
        await runner.run(keys, config.stage)
        return runner


def _build_judges(
    config: EvalConfig, loaded: Loaded, *, environ: Mapping[str, str]
) -> tuple[tuple[ChatModel, ...], Meter]:
    names = config.judges or default_judges(loaded.rules)
    if not loaded.rules.judge or not names or config.stage == "answers":
        return (), Meter()
    ceilings = SpendLimits(dollars=config.budget)
    built = build_judge(JudgeConfig(judge=names[0], also=names[1:], ceilings=ceilings), environ)
    return built.models, built.meter


def _build_case_judges(
    planned: PlannedEvaluation,
    models: Sequence[ChatModel],
    *,
    verdicts: Journal[VerdictRecord],
    timing: Timing,
    check: Callable[[], None],
    toolbox: Toolbox,
) -> tuple[CaseJudge, ...]:
    """One for each judge; without judges one that asks no model."""
    read = partial(read_page, toolbox) if FETCH_PAGE in toolbox.names else None
    slots = asyncio.Semaphore(planned.config.judge_concurrency)
    if planned.config.fact and read is None and planned.config.mode != "drtulu":
        raise ConfigError(
            "--fact reads the pages that a report cites, and these tools cannot. Give --tools a file with "
            'backend = "web" and fetch_page = true, or use --mode drtulu, which checks against the snippets shown.'
        )
    return tuple(
        CaseJudge(
            name,
            model,
            loaded=planned.loaded,
            journal=verdicts,
            retry=planned.config.retry,
            timing=timing,
            slots=slots,
            check_budget=check,
            read_page=read,
        )
        for name, model in zip(planned.manifest.judges or ("none",), models or (None,), strict=True)
    )


def _build_answerer(
    config: EvalConfig,
    toolbox: Toolbox,
    *,
    given: GivenAnswers | None,
    environ: Mapping[str, str],
    stack: AsyncExitStack,
) -> tuple[Answerer, Meter]:
    """The answerer and the meter of its cost; where only verdicts are made, nobody answers. `stack` closes the policy."""
    if config.stage == "verdicts":
        given = GivenAnswers("nobody", {})
    if given is not None:
        return given.answer, Meter()
    settings = PolicyConfig(
        policy=SCRIPTED if config.policy == EXPERT else config.policy,
        ceilings=SpendLimits(dollars=config.budget),
        retry=config.retry,
    )
    policy, meter = build_policy(settings, environ)
    is_flat = config.style == "react"
    if config.policy == EXPERT:
        path = Path(config.data) if config.data else shipped_questions_path()
        policy = expert_policy(load_questions(path), is_flat=is_flat)
    stack.push_async_callback(policy.aclose)
    answerer = partial(
        answer_in_episodes,
        setting=Setting(policy, toolbox, sampling=settings.sampling),
        prompt=agent_prompt(toolbox.names, style=config.style),
        references=_build_references(config, policy),
        attempts=config.attempts,
        seed=config.seed,
    )
    return answerer, meter


def _build_references(config: EvalConfig, policy: Policy) -> References:
    injector = build_injector(BankConfig(), policy.count_tokens)
    if config.reuse == "cross" and config.bank is not None:
        return partial(cross_references, bank=open_existing_bank(config.bank, embeds=True), injector=injector)
    if config.reuse == "within":
        # A bank of one example: lessons are retrieved by the question's key, so any embedder will do. The judge is
        # never called: reflections at inference are unjudged.
        return partial(
            within_references,
            open_bank=lambda: RubricBank.in_memory(HashingEmbedder()),
            open_reflector=lambda bank: Reflector(policy, RulesJudge(), bank),
            injector=injector,
        )
    return no_references


def run_over_ray(config: EvalConfig, shards: int) -> FinishedRun:
    """Run every part as one task of a cluster that sees the same folders, then the run itself, which merges them.

    Ray retries a part that dies, which resumes from its own logs. What no part did is done here.

    Raises:
        MissingExtraError: ray is not installed.
    """
    with requires_extra("verl", "sharding an evaluation over a cluster", package="ray"):
        ray = import_module("ray")
    # From any working directory. The policy's name stays as it is: it identifies the agent.
    is_local = bool(config.data) and not config.data.startswith(HUB)
    data = str(Path(config.data).expanduser().resolve()) if is_local else config.data
    anywhere = config.model_copy(update={"out": config.folder.resolve(), "data": data})
    plan_run(anywhere)
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    part = ray.remote(max_retries=3)(_run_part)
    text = anywhere.model_dump_json()
    ray.get([part.remote(text, number, shards) for number in range(1, shards + 1)])
    return asyncio.run(run_evaluation(plan_run(config)))


def _run_part(config: str, number: int, shards: int) -> None:
    """Run one part in a worker, from settings as JSON."""
    # Not strict: JSON has lists for tuples.
    whole = EvalConfig.model_validate_json(config, strict=False)
    asyncio.run(run_evaluation(plan_run(whole.model_copy(update={"shard": (number, shards)}))))
