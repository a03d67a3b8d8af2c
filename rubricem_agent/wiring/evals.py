"""Runs an evaluation: opens policy, tools and judges, resumes from its logs, and computes its scores."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.evals.budget import check_budget
from rubricem_agent.evals.cases import case_keys
from rubricem_agent.evals.limited_tools import LimitedToolbox, RealWorldToolbox
from rubricem_agent.evals.resumed_run import settle_manifest
from rubricem_agent.evals.runner import Listener, Runner
from rubricem_agent.evals.scoring import EvaluationLogs, score_run
from rubricem_agent.wiring.eval_answerer import build_answerer
from rubricem_agent.wiring.eval_config import default_judges, fact_judges
from rubricem_agent.wiring.eval_judges import build_case_judges
from rubricem_agent.wiring.eval_plan import PlannedEvaluation
from rubricem_agent.wiring.models import JUDGE_KEY, POLICY_KEY, build_judge, naming
from rubricem_agent.wiring.probe import Probe, model_probes, require_answers, search_probes
from rubricem_agent.wiring.stored_runs import read_parts, write_scores
from rubricem_agent.wiring.tools import TOKEN_VARIABLE, open_tools
from rubricem_env.llm.chat import ChatModel, Effort
from rubricem_env.llm.hosts import url_host
from rubricem_env.llm.limits.limiter import LimiterOf, own_limiter
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.usage import Meter, SpendLimits
from rubricem_records.evaluations.logs import AnswerRecord, CaseKey, VerdictRecord
from rubricem_records.evaluations.manifest import ANSWERS_FILE, VERDICTS_FILE
from rubricem_records.evaluations.scores import Scores
from rubricem_records.files.journal import Journal

SHARDS = "shards"
"""The folder of the parts of a split run."""


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
            answers.adopt(record.model_copy(update={"mode": manifest.mode}) for record in given if record.key in keys)
        parts = read_parts(folder / SHARDS, planned.manifest)
        if planned.given is not None:
            for log in (answers, *(part_answers for part_answers, _ in parts)):
                planned.given.refuse_changed(log.records)
        for part_answers, part_verdicts in parts:
            answers.adopt(part_answers.records)
            verdicts.adopt(part_verdicts.records)
        runner = await _drive(
            planned._replace(manifest=manifest), environ, logs=logs, listener=listener, limiter_of=limiter_of
        )
        scores = score_run(planned.loaded, manifest, logs=logs)
    write_scores(folder, scores)
    return FinishedRun(folder, runner, scores)


async def _drive(
    planned: PlannedEvaluation,
    environ: Mapping[str, str],
    *,
    logs: EvaluationLogs,
    listener: Listener,
    limiter_of: LimiterOf,
) -> Runner:
    config = planned.config
    answers, verdicts = logs
    is_asked = planned.loaded.rules.judge and config.stage != "answers"
    judges = (config.judges or default_judges(planned.loaded.rules)) if is_asked else ()
    # Policy and judges stand on the command line: their user has named their hosts.
    environ = naming(naming(environ, POLICY_KEY, config.policy), JUDGE_KEY, *judges)
    rules = planned.loaded.rules
    fact = fact_judges(config, rules) if judges else ()
    models, judge_meter = _open_judges(planned, environ, judges, effort=planned.manifest.judge_effort)
    fact_models, fact_meter = _open_judges(planned, environ, fact, effort=rules.fact_effort)
    async with AsyncExitStack() as stack:
        for model in (*models, *fact_models):
            stack.push_async_callback(model.aclose)
        tools = planned.tools
        named = naming(environ, TOKEN_VARIABLE, config.tools) if url_host(config.tools) else environ
        opened = await stack.enter_async_context(open_tools(tools, named, limiter_of=limiter_of))
        toolbox = LimitedToolbox(opened.toolbox, asyncio.Semaphore(config.search_concurrency))
        is_free = planned.loaded.benchmark.is_almanac or tools.searches == "almanac"
        searched = toolbox if is_free else RealWorldToolbox(toolbox)
        answerer, meter = build_answerer(planned, searched, environ=environ, stack=stack, specs=opened.specs)
        # Answers that were copied were paid for by another run.
        paid = () if config.answers_from is not None else answers.records
        spent_on_answers = sum(record.dollars or 0.0 for record in paid)
        spent_on_verdicts = sum(record.dollars or 0.0 for record in verdicts.records)
        spent = spent_on_answers + spent_on_verdicts
        check = partial(check_budget, config.budget, spent_before=spent, meters=(judge_meter, fact_meter, meter))
        timing = Timing.real(config.seed)
        runner = Runner(
            planned.loaded,
            answers,
            answerer=answerer,
            judges=build_case_judges(
                planned,
                models,
                fact_model=next(iter(fact_models), None),
                verdicts=verdicts,
                timing=timing,
                check=check,
                toolbox=toolbox,
            ),
            concurrency=config.concurrency,
            guidance=planned.manifest.agent.guidance,
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


def _open_judges(
    planned: PlannedEvaluation, environ: Mapping[str, str], names: tuple[str, ...], *, effort: Effort
) -> tuple[tuple[ChatModel, ...], Meter]:
    """The models behind the names, and the meter of their cost."""
    if not names:
        return (), Meter()
    ceilings = SpendLimits(dollars=planned.config.budget)
    config = JudgeConfig(judge=names[0], also=names[1:], ceilings=ceilings, effort=effort)
    built = build_judge(config, environ, prices=planned.prices)
    return built.models, built.meter


def _probes(
    planned: PlannedEvaluation,
    keys: Sequence[CaseKey],
    *,
    logs: EvaluationLogs,
    judges: tuple[str, ...],
    tools: ToolsConfig,
    environ: Mapping[str, str],
) -> list[Probe]:
    """The probes of what is still to be asked: none where every answer and every verdict is in the logs."""
    config = planned.config
    answers, verdicts = logs
    records = [answers.find(key) for key in keys]
    is_answered = all(record is not None and record.is_final for record in records)
    answering = config.asks_a_model and config.stage != "verdicts" and not is_answered
    judged = {(record.key[0], record.judge) for record in verdicts.records if record.is_final}
    names = planned.manifest.judges if judges else ()
    judging = answering or any((key, name) not in judged for key in keys for name in names)
    probes = model_probes(environ, policy=config.policy if answering else "", judges=judges if judging else ())
    return probes + (search_probes(tools, environ) if answering else [])
