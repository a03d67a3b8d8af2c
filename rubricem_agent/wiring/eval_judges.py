"""Opens the judges of an evaluation."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from rubricem_agent.evals.case_judge import CaseJudge
from rubricem_agent.evals.limited_tools import read_page
from rubricem_agent.wiring.eval_plan import PlannedEvaluation
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.chat import ChatModel
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.spec import FETCH_PAGE
from rubricem_records.evaluations.logs import VerdictRecord
from rubricem_records.files.journal import Journal


def build_case_judges(
    planned: PlannedEvaluation,
    models: Sequence[ChatModel],
    *,
    fact_model: ChatModel | None = None,
    verdicts: Journal[VerdictRecord],
    timing: Timing,
    check: Callable[[], None],
    toolbox: Toolbox,
) -> tuple[CaseJudge, ...]:
    """One for each judge; without judges one that asks no model."""
    read = partial(read_page, toolbox) if FETCH_PAGE in toolbox.names else None
    slots = asyncio.Semaphore(planned.config.judge_concurrency)
    if planned.config.fact and read is None and not planned.loaded.rules.is_drtulu:
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
            fact_model=fact_model,
            read_page=read,
            prices=planned.prices,
        )
        for name, model in zip(planned.manifest.judges or ("none",), models or (None,), strict=True)
    )
