"""The settings of a judge."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from rubricem_agent.model_names import RULES
from rubricem_env.domain.base import Frozen
from rubricem_env.judge.ensemble import Combine, Proposers
from rubricem_env.judge.model.ask_settings import AskSettings
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.llm.chat import Effort
from rubricem_env.llm.limits.limiter import Rates
from rubricem_env.llm.usage import SpendLimits


class JudgeConfig(Frozen):
    """A judge; the defaults are the paper's."""

    judge: str = RULES
    """`rules`, `gemini:MODEL` or `openai:MODEL@URL`."""
    also: tuple[str, ...] = ()
    """Further judges, which score attempts and reflections as an ensemble with the first."""
    combine: Combine = "mean"
    proposers: Proposers = "first"
    """Which judges of an ensemble propose rubrics: the first that can, or `all`, whose rubrics are joined."""
    prompts: Path | None = None
    """A folder of your own prompts for a judge model: propose.md, score.md, reflect.md, admit.md and repair.md, with
    the placeholders of ours. None: ours.
    """
    ask: AskSettings = AskSettings()
    settings: JudgeSettings = JudgeSettings()
    rates: Rates = Rates()
    ceilings: SpendLimits = SpendLimits()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one call."""
    effort: Effort = ""
    """How much the models think before they reply; empty leaves it to their provider."""
    hedge_after: Annotated[float, Field(gt=0)] | None = None
    """Seconds after which a call without a reply is made a second time; the first reply is taken, both are counted."""
