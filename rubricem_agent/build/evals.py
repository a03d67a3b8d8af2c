"""Builds and drives evaluations: the place that knows the files, the policies, the judges and the folders."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.build.eval_agent import open_answerer
from rubricem_agent.build.eval_answers import copy_answers
from rubricem_agent.build.eval_plan import PlannedRun
from rubricem_agent.build.eval_scores import read_parts, take_over_parts, write_scores
from rubricem_agent.build.judge import build_judge
from rubricem_agent.build.tools import open_tools
from rubricem_agent.config.evals import EvalConfig, default_judges
from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.tools import ToolsConfig, load_tools_config
from rubricem_agent.evals.answering.limited_search import LimitedToolbox
from rubricem_agent.evals.answering.pages import ToolboxPages
from rubricem_agent.evals.loading import Loaded
from rubricem_agent.evals.modes import Mode
from rubricem_agent.evals.run.budget import Budget
from rubricem_agent.evals.run.journal import Journal
from rubricem_agent.evals.run.judging import JudgeDesk, Terms
from rubricem_agent.evals.run.manifest import (
    ANSWERS_FILE,
    VERDICTS_FILE,
    settle_manifest,
)
from rubricem_agent.evals.run.records import AnswerRecord, VerdictRecord
from rubricem_agent.evals.run.runner import Allowance, Listener, Outcome, Runner, case_keys
from rubricem_agent.evals.scores import Scores
from rubricem_agent.evals.scoring import Logs, score_run
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.base import ChatModel
from rubricem_env.llm.retry import Timing
from rubricem_env.llm.usage import Ceilings, Meter
from rubricem_env.tools.base import FETCH_PAGE, Toolbox

SHARDS = "shards"
"""The folder of the parts of a run that was split."""


class FinishedRun(NamedTuple):
    """How a run came out, and its numbers."""

    folder: Path
    outcome: Outcome
    scores: Scores


class _Judges(NamedTuple):
    models: tuple[ChatModel, ...]
    meter: Meter


async def run_evaluation(
    planned: PlannedRun, environ: Mapping[str, str] = os.environ, *, listener: Listener = lambda step: None
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


async def _drive(planned: PlannedRun, environ: Mapping[str, str], *, logs: Logs, listener: Listener) -> Outcome:
    config, loaded = planned.config, planned.loaded
    judges = _build_judges(config, loaded, environ=environ)
    async with AsyncExitStack() as stack:
        for model in judges.models:
            stack.push_async_callback(model.aclose)
        toolbox = await stack.enter_async_context(_open_search(config, environ))
        opened = await stack.enter_async_context(open_answerer(config, toolbox, given=planned.given, environ=environ))
        budget = Budget(config.budget, spent_before=_spent_before(config, logs), meters=(judges.meter, opened.meter))
        timing = Timing.real(config.seed)
        terms = Terms(config.retry, timing, asyncio.Semaphore(config.limits.judge), budget.check)
        runner = Runner(
            loaded,
            logs.answers,
            answerer=opened.answerer,
            desks=_desks(planned, judges, logs=logs, terms=terms, toolbox=toolbox),
            allowance=Allowance(config.limits, budget.check),
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


def _desks(
    planned: PlannedRun, judges: _Judges, *, logs: Logs, terms: Terms, toolbox: Toolbox
) -> tuple[JudgeDesk, ...]:
    """One desk for each judge; without a judge one that is asked nothing."""
    names = planned.manifest.judges or ("none",)
    models: tuple[ChatModel | None, ...] = judges.models or (None,)
    pages = ToolboxPages(toolbox) if FETCH_PAGE in toolbox.names else None
    if planned.config.fact and pages is None and planned.config.mode is not Mode.DRTULU:
        raise ConfigError(
            "--fact reads the pages that a report cites, and these tools cannot. Give --tools a file with "
            'backend = "web" and fetch_page = true, or use --mode drtulu, which checks against the snippets shown.'
        )
    return tuple(
        JudgeDesk(
            name,
            model,
            benchmark=planned.loaded.name,
            rules=planned.loaded.rules,
            journal=logs.verdicts,
            terms=terms,
            pages=pages,
        )
        for name, model in zip(names, models, strict=True)
    )


def _build_judges(config: EvalConfig, loaded: Loaded, *, environ: Mapping[str, str]) -> _Judges:
    named = config.judges or default_judges(loaded.rules)
    if not loaded.rules.judge or not named or config.stage.value == "answers":
        return _Judges((), Meter())
    ceilings = Ceilings(dollars=config.budget)
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
