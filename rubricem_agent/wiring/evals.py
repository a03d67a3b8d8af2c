"""Runs evaluations: opens the policy, tools and judges, resumes from the logs, shards over Ray, exports to Inspect.

`compare_prompts` calibrates our own judge prompts against the official ones: the same answers, judged twice by one judge.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, chdir, closing
from functools import partial
from importlib import import_module
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rubricem_agent import config as configs
from rubricem_agent.config import EvalConfig
from rubricem_agent.evals import answers as answerers
from rubricem_agent.evals.budget import check_budget
from rubricem_agent.evals.resumed_run import settle_manifest
from rubricem_agent.evals.runner import CaseJudge, Listener, Runner, case_keys
from rubricem_agent.evals.scoring import EvaluationLogs, agree, read_labels, score_run
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.policy.base import Policy
from rubricem_agent.prompting import agent_prompt
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import RolloutContext
from rubricem_agent.wiring import eval_plan
from rubricem_agent.wiring.eval_plan import PlannedEvaluation, plan_run, read_logs
from rubricem_agent.wiring.memory import build_injector, open_existing_bank
from rubricem_agent.wiring.models import (
    JUDGE_KEY,
    POLICY_KEY,
    build_judge,
    build_policy,
    naming,
    requires_extra,
    system_of,
)
from rubricem_agent.wiring.probe import Probe, model_probes, require_answers, search_probes
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import ConfigError, RubricEMError, UsageError
from rubricem_env.domain.inputs import read_text
from rubricem_env.judge.rules_judge import RulesJudge
from rubricem_env.llm.base import ChatModel
from rubricem_env.llm.limits import LimiterOf, RemoteLimiter, SharedLimits, Timing, own_limiter
from rubricem_env.llm.usage import Meter, SpendLimits
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.spec import FETCH_PAGE
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_records.atomic_files import writing
from rubricem_records.evaluation_logs import AnswerRecord, CaseKey, VerdictRecord
from rubricem_records.evaluation_manifest import ANSWERS_FILE, MANIFEST_FILE, VERDICTS_FILE, read_manifest
from rubricem_records.evaluation_scores import Scores, read_scores
from rubricem_records.journal import NO_ROOM, Journal
from rubricem_records.statistics import MeanInterval, RunComparison, cohens_kappa, kappa_interval, paired_bootstrap

ResultT = TypeVar("ResultT")

SHARDS = "shards"
"""The folder of the parts of a split run."""
_MAX_WAITING = 100_000
"""Calls of all processes that may wait for their turns at once."""


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
    loaded = eval_plan.reload_benchmark(folder, read_manifest(folder))
    write_inspect_log(out, loaded, scores=read_scores(folder), answers=eval_plan.read_logs(folder).answers)


class FinishedRun(NamedTuple):
    """A run and its scores; the runner has what was done in this process."""

    folder: Path
    runner: Runner
    scores: Scores


async def run_evaluation(
    planned: eval_plan.PlannedEvaluation,
    environ: Mapping[str, str] = os.environ,
    *,
    listener: Listener = lambda phase, failure: None,
    limiter_of: LimiterOf = own_limiter,
) -> FinishedRun:
    """Do what is missing of a run, then compute its scores. `limiter_of` gives each search engine its limiter.

    Raises:
        UsageError: the folder holds a different run, a key is missing, or another process writes to the run.
    """
    config = planned.config
    number, total = config.shard
    folder = config.folder if total == 1 else config.folder / SHARDS / f"{number}-of-{total}"
    manifest = settle_manifest(folder, planned.manifest)
    with (
        closing(Journal.open(folder / ANSWERS_FILE, AnswerRecord)) as answers,
        closing(Journal.open(folder / VERDICTS_FILE, VerdictRecord)) as verdicts,
    ):
        logs = EvaluationLogs(answers, verdicts)
        if config.answers_from is not None:
            # Answers are the same in every mode.
            keys = set(case_keys(manifest.inputs.ids, manifest.epochs))
            given = Journal.read(config.answers_from / ANSWERS_FILE, AnswerRecord).records
            answers.adopt(one.model_copy(update={"mode": manifest.mode}) for one in given if one.key in keys)
        parts = eval_plan.read_parts(folder / SHARDS, planned.manifest)
        if planned.given is not None:
            for log in (answers, *(part_answers for part_answers, _ in parts)):
                planned.given.refuse_changed(log.records)
        for part_answers, part_verdicts in parts:
            answers.adopt(part_answers.records)
            verdicts.adopt(part_verdicts.records)
        # The judges as the run recorded them: an earlier release wrote their models alone, and its verdicts have those.
        runner = await _drive(
            planned._replace(manifest=manifest), environ, logs=logs, listener=listener, limiter_of=limiter_of
        )
        scores = score_run(planned.loaded, manifest, logs=logs)
    eval_plan.write_scores(folder, scores)
    return FinishedRun(folder, runner, scores)


async def _drive(
    planned: eval_plan.PlannedEvaluation,
    environ: Mapping[str, str],
    *,
    logs: EvaluationLogs,
    listener: Listener,
    limiter_of: LimiterOf,
) -> Runner:
    config = planned.config
    answers, verdicts = logs
    is_asked = planned.loaded.rules.judge and config.stage != "answers"
    judges = (config.judges or configs.default_judges(planned.loaded.rules)) if is_asked else ()
    # Policy and judges stand on the command line: their user has named their hosts.
    environ = naming(naming(environ, POLICY_KEY, config.policy), JUDGE_KEY, *judges)
    models: tuple[ChatModel, ...] = ()
    judge_meter = Meter()
    if judges:
        ceilings = SpendLimits(dollars=config.budget)
        built = build_judge(
            configs.JudgeConfig(judge=judges[0], also=judges[1:], ceilings=ceilings), environ, prices=planned.prices
        )
        models, judge_meter = built.models, built.meter
    async with AsyncExitStack() as stack:
        for model in models:
            stack.push_async_callback(model.aclose)
        tools = configs.load_tools_config(config.tools) if config.tools is not None else configs.ToolsConfig()
        opened = await stack.enter_async_context(open_tools(tools, environ, limiter_of=limiter_of))
        toolbox = answerers.LimitedToolbox(opened.toolbox, asyncio.Semaphore(config.search_concurrency))
        answerer, meter = _build_answerer(planned, toolbox, environ=environ, stack=stack)
        # Answers that were copied were paid for by another run.
        paid = () if config.answers_from is not None else answers.records
        spent = sum(one.dollars or 0.0 for one in paid) + sum(one.dollars or 0.0 for one in verdicts.records)
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
            prices=planned.prices,
        )
        number, total = config.shard
        keys = case_keys(planned.manifest.inputs.ids, config.epochs)[number - 1 :: total]
        if config.probe:
            await require_answers(_probes(planned, keys, logs=logs, judges=judges, tools=tools, environ=environ))
        await runner.run(keys, config.stage)
        return runner


def _probes(
    planned: eval_plan.PlannedEvaluation,
    keys: Sequence[CaseKey],
    *,
    logs: EvaluationLogs,
    judges: tuple[str, ...],
    tools: configs.ToolsConfig,
    environ: Mapping[str, str],
) -> list[Probe]:
    """The probes of what is still to be asked: none where every answer and every verdict is in the logs."""
    config, (answers, verdicts) = planned.config, logs
    found = [answers.find(key) for key in keys]
    answering = config.asks_a_model and config.stage != "verdicts" and not all(one and one.is_final for one in found)
    judged = {(record.key[0], record.judge) for record in verdicts.records if record.is_final}
    names = planned.manifest.judges if judges else ()
    judging = answering or any((key, name) not in judged for key in keys for name in names)
    probes = model_probes(environ, policy=config.policy if answering else "", judges=judges if judging else ())
    return probes + (search_probes(tools, environ) if answering else [])


def _build_case_judges(
    planned: eval_plan.PlannedEvaluation,
    models: Sequence[ChatModel],
    *,
    verdicts: Journal[VerdictRecord],
    timing: Timing,
    check: Callable[[], None],
    toolbox: Toolbox,
) -> tuple[CaseJudge, ...]:
    """One for each judge; without judges one that asks no model."""
    read = partial(answerers.read_page, toolbox) if FETCH_PAGE in toolbox.names else None
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
            prices=planned.prices,
        )
        for name, model in zip(planned.manifest.judges or ("none",), models or (None,), strict=True)
    )


def _build_answerer(
    planned: eval_plan.PlannedEvaluation, toolbox: Toolbox, *, environ: Mapping[str, str], stack: AsyncExitStack
) -> tuple[answerers.Answerer, Meter]:
    """The answerer and the meter of its cost; where only verdicts are made, nobody answers. `stack` closes the policy."""
    config, given = planned.config, planned.given
    if config.stage == "verdicts":
        given = answerers.GivenAnswers("nobody", {})
    if given is not None:
        return given.answer, Meter()
    settings = configs.PolicyConfig(
        policy=configs.SCRIPTED if config.policy == configs.EXPERT else config.policy,
        sampling=config.sampling,
        ceilings=SpendLimits(dollars=config.budget),
        retry=config.retry,
    )
    policy, meter = build_policy(settings, environ, prices=planned.prices)
    is_flat = config.style == "react"
    if config.policy == configs.EXPERT:
        path = Path(config.data) if config.data else shipped_questions_path()
        policy = answerers.expert_policy(load_questions(path), is_flat=is_flat)
    stack.push_async_callback(policy.aclose)
    answerer = partial(
        answerers.answer_in_episodes,
        context=RolloutContext(policy, toolbox, sampling=settings.sampling),
        prompt=agent_prompt(toolbox.names, style=config.style, system=system_of(config.policy)),
        references=_build_references(config, policy),
        attempts=config.attempts,
        seed=config.seed,
    )
    return answerer, meter


def _build_references(config: configs.EvalConfig, policy: Policy) -> answerers.References:
    injector = build_injector(configs.BankConfig(), policy.count_tokens)
    if config.reuse == "cross" and config.bank is not None:
        return partial(answerers.cross_references, bank=open_existing_bank(config.bank, embeds=True), injector=injector)
    if config.reuse == "within":
        # A bank of one example: lessons are retrieved by the question's key, so any embedder will do. The judge is
        # never called: reflections at inference are unjudged.
        return partial(
            answerers.within_references,
            open_bank=lambda: RubricBank.in_memory(HashingEmbedder()),
            open_reflector=lambda bank: Reflector(policy, RulesJudge(), bank),
            injector=injector,
        )
    return answerers.no_references


def run_over_ray(config: configs.EvalConfig, shards: int) -> FinishedRun:
    """Run every part as one task of a cluster that sees the same folders, then the run itself, which merges them.

    Ray retries a part that dies, which resumes from its own logs. What no part did is done here. The parts share the
    rates of the search engines; each has its part of the concurrency and of the budget.

    Raises:
        MissingExtraError: ray is not installed.
        ConfigError: Ray does not start.
    """
    eval_plan.plan_run(config)

    def share(limit: int) -> int:
        return max(1, limit // shards)

    limits = {name: share(getattr(config, name)) for name in type(config).model_fields if name.endswith("concurrency")}
    part = config.model_copy(update={**limits, "budget": config.budget and config.budget / shards})
    text, folder = part.model_dump_json(), os.getcwd()
    run_on_ray(
        _run_part, [(text, folder, number, shards) for number in range(1, shards + 1)], what="sharding an evaluation"
    )
    return asyncio.run(run_evaluation(eval_plan.plan_run(config)))


def run_on_ray(work: Callable[..., ResultT], calls: Sequence[tuple[Any, ...]], *, what: str) -> list[ResultT]:
    """One task for each call, on this machine or on the cluster of RAY_ADDRESS; a task that dies is run again.

    Ray puts the driver's folder on its workers' module path, and the modules that lie there would run with our keys:
    the folder is that of this package while Ray starts. A failure of ours is raised as it was in the worker. Each task
    gets the actor of the limits that all share as its last argument.

    Raises:
        MissingExtraError: ray is not installed.
        ConfigError: Ray does not start.
    """
    with requires_extra("verl", what, package="ray"):
        ray: Any = import_module("ray")
    try:
        with chdir(Path(__file__).parents[2]):
            ray.init(include_dashboard=False, ignore_reinit_error=True, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as cause:
        raise ConfigError(
            f"Ray does not start: {cause}. Check RAY_ADDRESS and the cluster, or run without --ray."
        ) from cause
    try:
        task = ray.remote(max_retries=3)(work)
        service = ray.remote(SharedLimits).options(num_cpus=0, max_concurrency=_MAX_WAITING).remote()
        results: list[ResultT] = ray.get([task.remote(*call, service) for call in calls])
    except ray.exceptions.RayTaskError as failure:
        raise failure.cause if isinstance(failure.cause, RubricEMError) else failure from None
    finally:
        ray.shutdown()
    return results


def limits_of(service: Any) -> LimiterOf:
    """The limiters of a Ray actor with the methods of `SharedLimits`."""
    return partial(RemoteLimiter, enter=service.enter.remote, leave=service.leave.remote)


def _run_part(config: str, folder: str, number: int, shards: int, service: Any) -> None:
    """Run one part in a worker, from settings as JSON whose paths begin at `folder`."""
    os.chdir(folder)
    # Not strict: JSON has lists for tuples.
    whole = configs.EvalConfig.model_validate_json(config, strict=False)
    planned = eval_plan.plan_run(whole.model_copy(update={"shard": (number, shards)}))
    asyncio.run(run_evaluation(planned, limiter_of=limits_of(service)))


WORDINGS = ("own", "official")
Pair = tuple[PlannedEvaluation, PlannedEvaluation]
"""The run in our own words and the one in the official words."""


class WordingAgreement(Frozen):
    """One judge, asked in two wordings about the same answers of one benchmark."""

    benchmark: Text
    mode: Text
    judge: Text
    answers: int
    """Answers that were graded in both wordings."""
    missing: int
    """Answers without a grade in one of them: outages, or replies without a verdict."""
    verdicts: int
    """Questions that got a readable reply in both."""
    same: float
    """The share of equal verdicts."""
    kappa: float
    interval: MeanInterval
    """Of kappa, over answers."""
    scores: RunComparison
    """Of the scores: own minus official."""


def plan_calibration(config: EvalConfig, run: Path, *, out: Path, prompts: str, limit: int | None = None) -> Pair:
    """The two runs that judge the first `limit` answers of `run`; `config` has the judge and the limits.

    Raises:
        UsageError: the run has no answer, or its benchmark no judge.
    """
    source = read_manifest(run)
    inputs = source.inputs
    if not source.rules.judge:
        raise UsageError(f"{run} is a run of {source.benchmark} in mode {source.mode}, which asks no judge.")
    answered = {record.id for record in read_logs(run).answers.records if record.is_final}
    ids = [example_id for example_id in inputs.ids if example_id in answered][:limit]
    if not ids:
        raise UsageError(f"{run} has no answers. Finish it with `rubricem eval {source.benchmark} --stage answers`.")
    folder = out / run.resolve().name
    chosen, text = folder / "ids.txt", "".join(f"{example_id}\n" for example_id in ids)
    has_begun = (folder / WORDINGS[0] / MANIFEST_FILE).exists()
    if has_begun and (known := read_text(chosen, "a file of ids")) != text:
        raise UsageError(
            f"{folder} holds a calibration on {known.count(chr(10))} answers; refusing to resume with {len(ids)}, because "
            "the numbers would mix both. Give the same --limit and run, or another --out."
        )
    with writing(chosen, NO_ROOM):
        folder.mkdir(parents=True, exist_ok=True)
        chosen.write_text(text, encoding="utf-8")
    given = {
        "benchmark": source.benchmark,
        "mode": source.mode,
        "data": inputs.path,
        "criteria": Path(inputs.criteria) if inputs.criteria else None,
        "references": Path(inputs.references) if inputs.references else None,
        "any_version": inputs.any_version,
        "answers_from": run,
        "ids": chosen,
    }
    own, official = (
        plan_run(config.model_copy(update={**given, "prompts": words, "out": folder / name}))
        for name, words in zip(WORDINGS, ("", prompts), strict=True)
    )
    return own, official


async def compare_prompts(pair: Pair, listener: Listener = lambda phase, failure: None) -> WordingAgreement | str:
    """Do what is missing of both runs, and compare; why nothing can be compared, where no answer has both grades.

    The budget is that of both together.
    """
    own, official = pair
    first = await run_evaluation(own, listener=listener)
    budget = own.config.budget
    if budget is not None:
        # What the first run has cost is no longer there; a budget of nothing is refused by the settings.
        left = max(budget - first.scores.dollars, 1e-9)
        official = official._replace(config=official.config.model_copy(update={"budget": left}))
    second = await run_evaluation(official, listener=listener)
    stopped = first.runner.stopped or second.runner.stopped
    name = first.scores.manifest.judges[0]
    labels = [read_labels(one.loaded, name, logs=read_logs(one.config.folder)) for one in (own, official)]
    ours, theirs, examples = agree(*labels)
    scores = first.scores.headline.per_example, second.scores.headline.per_example
    both = scores[0].keys() & scores[1].keys()
    if not (ours and both):
        why = [*first.runner.failures, *second.runner.failures, "no verdict could be read"]
        return f"{own.manifest.benchmark}: no answer was graded in both wordings: {stopped or why[0]}"
    rng = np.random.default_rng(own.config.seed)
    return WordingAgreement(
        benchmark=own.manifest.benchmark,
        mode=own.manifest.mode,
        judge=name,
        answers=len(both),
        missing=len(own.manifest.inputs.ids) - len(both),
        verdicts=len(ours),
        same=sum(map(eq, ours, theirs)) / len(ours),
        kappa=cohens_kappa(ours, theirs),
        interval=kappa_interval(ours, theirs, examples, rng=rng),
        scores=paired_bootstrap(*scores, rng=rng, names=WORDINGS),
    )
