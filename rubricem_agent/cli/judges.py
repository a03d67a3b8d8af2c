"""What the commands that ask a judge share: the option that names it, its opening, and rows of agreement."""

import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.model_names import JUDGE_NAMES
from rubricem_agent.wiring.models import JUDGE_KEY, BuiltJudge, build_judge, naming
from rubricem_agent.wiring.probe import model_probes, require_answers
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, is_shipped, read_stage_set
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.judge.base import Contrast, Judge, Proposal, ScoringRequest, ScoringResult
from rubricem_env.judge.model.ask_settings import AskSettings
from rubricem_env.judge.trust.agreement import Agreement
from rubricem_env.llm.limits.limiter import Rates

JudgeOption = Annotated[str, typer.Option("--judge", help=f"{JUDGE_NAMES}.")]


@dataclass(frozen=True)
class AskOptions:
    """How a judge model is asked. Field names are option names."""

    max_output_tokens: Annotated[
        int, typer.Option(min=256, help="The most tokens of one reply of a judge model, thoughts included.")
    ] = AskSettings().max_output_tokens
    concurrency: Annotated[
        int, typer.Option(min=1, help="Calls of the judge model at once; 1 for a server that runs one at a time.")
    ] = Rates().concurrency

    def config(self, judge: str) -> JudgeConfig:
        """The settings of the judge that is named."""
        ask = AskSettings(max_output_tokens=self.max_output_tokens)
        return JudgeConfig(judge=judge, ask=ask, rates=Rates(concurrency=self.concurrency))


class WatchedJudge:
    """A judge that reports each scored attempt; its scores are unchanged."""

    def __init__(self, judge: Judge, on_scored: Callable[[int], None]) -> None:
        self.name = judge.name
        self._judge = judge
        self._on_scored = on_scored

    async def propose(self, contrast: Contrast) -> Proposal:
        return await self._judge.propose(contrast)

    async def score(self, request: ScoringRequest) -> ScoringResult:
        scored = await self._judge.score(request)
        self._on_scored(1)
        return scored


def stage_set_of(attempts: Iterable[Trajectory], named: str) -> StageSet:
    """The set that all attempts were written in: the named one, or one of the package by its name.

    Raises:
        ConfigError: there is no such set, or an attempt is of another one.
    """
    scaffolds = [attempt.scaffold for attempt in attempts]
    own = scaffolds[0].name
    stage_set = read_stage_set(named or (own if is_shipped(own) else DEEP_RESEARCH.name))
    other = next((scaffold for scaffold in scaffolds if scaffold != stage_set.scaffold), None)
    if other is not None:
        raise ConfigError(
            f"an attempt was written in the stages {', '.join(other.names)} of {other.name!r}, and the judge would "
            f"read it in those of {stage_set.name!r}; name its stage set with --scaffold."
        )
    return stage_set


@asynccontextmanager
async def open_judge(
    config: JudgeConfig, *, probe: bool, stage_set: StageSet = DEEP_RESEARCH
) -> AsyncIterator[BuiltJudge]:
    """The judge of the command line, which its user has named; with `probe` it has answered a first request."""
    environ = naming(os.environ, JUDGE_KEY, config.judge)
    async with aclosing(build_judge(config, environ, stage_set=stage_set)) as built:
        if probe:
            await require_answers(model_probes(environ, judges=[config.judge]))
        yield built


def agreement_cells(agreement: Agreement) -> tuple[str, ...]:
    """Pairs, exact, within one, kappa and bias, as text."""
    shares = (agreement.exact, agreement.within_one, agreement.kappa)
    shown = tuple("-" if share is None else f"{share:.2f}" for share in shares)
    bias = "-" if agreement.bias is None else f"{agreement.bias:+.2f}"
    return (str(agreement.pairs), *shown, bias)
