"""Rewards of an environment: which stages a step pays, and from which scores.

When several episodes attempt one question, the scorer contrasts them: it gets the group in one call, once all are over.
"""

import asyncio
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.episode import Episode
from rubricem_env.scaffold.grammar import DEFAULT

RewardMode = Literal["none", "answer", "stagewise"]
"""What `step` returns as reward.

none: always 0.0, because the judge works on finished groups, outside the environment. answer: the last stage's score
on the last step. stagewise: each stage's score on the step that closes it: the plan's at once, the others' on the last
step.
"""


@runtime_checkable
class Scorer(Protocol):
    """Scores trajectories of one question. A failure to score is a result with its reason, not an exception."""

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]: ...


class ScoreEach:
    """A plain function from one trajectory to its judgement, as a scorer."""

    def __init__(self, judge: Callable[[Trajectory], Judgement]) -> None:
        if not callable(judge) or isinstance(judge, type):
            raise UsageError(
                f"ScoreEach got {_named(judge)}; it wraps a function from one trajectory to its Judgement. For the "
                f"rubrics of questions write {RULES_SCORER}."
            )
        self._judge = judge

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """One judgement each, in order.

        Raises:
            UsageError: the function returns something else.
        """
        judgements = [self._judge(trajectory) for trajectory in trajectories]
        for judgement in judgements:
            if not isinstance(judgement, Judgement):
                raise UsageError(
                    f"the function of ScoreEach returned a {type(judgement).__name__}; it returns a Judgement, such as "
                    "Judgement.of({Stage.ANSWER: StageScore(score=1.0)})."
                )
        return judgements


Judging = asyncio.Task[Sequence[Judgement]]


class GatheringScorer:
    """Buffers finished episodes until `group_size` attempts at the question are complete, and scores them together.

    After `patience` seconds the group is scored without the missing attempts, with a warning. An episode
    that is still running is scored at once and alone, so environments pay a group its plans at the end. All calls come
    from one event loop.
    """

    def __init__(self, scorer: Scorer, group_size: int, *, patience: float = 600.0) -> None:
        if group_size < 1 or patience <= 0:
            raise UsageError(
                f"group_size is {group_size} and patience {patience} s; they must be at least 1 and above 0."
            )
        check_scorer(scorer)
        self._scorer = scorer
        self.group_size = group_size
        self._patience = patience
        self._open: dict[str, tuple[list[Trajectory], asyncio.Future[Judging]]] = {}
        """The attempts that wait, by query key, and the task that will judge them once the group is closed."""

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """The judgements of these attempts, made within their whole group."""
        if len(trajectories) != 1 or trajectories[0].ending is None:
            return await self._scorer.score(trajectories)
        key = trajectories[0].query_key
        if key not in self._open:
            self._open[key] = [], asyncio.get_running_loop().create_future()
        attempts, closed = self._open[key]
        index = len(attempts)
        attempts.append(trajectories[0])
        if len(attempts) == self.group_size:
            self._close(key)
        try:
            await asyncio.wait_for(asyncio.shield(closed), self._patience)
        except TimeoutError:
            if not closed.done():
                self._close(key)
                warnings.warn(
                    f"a group of {self.group_size} is incomplete: {len(attempts)} attempts came within "
                    f"{self._patience:g} s and are judged without the rest.",
                    stacklevel=2,
                )
        # Shielded: cancelling one attempt does not lose the scores of the others.
        return [(await asyncio.shield(closed.result()))[index]]

    def _close(self, key: str) -> None:
        """Judge the group; no further attempt joins it."""
        attempts, closed = self._open.pop(key)
        closed.set_result(asyncio.ensure_future(self._scorer.score(attempts)))


def check_reward(reward: RewardMode, scorer: Scorer | None) -> None:
    """Refuse an unknown mode, a mode without its scorer, and a scorer without a `score` method."""
    if reward not in get_args(RewardMode):
        raise ConfigError(f"the reward mode is {reward!r}; it is one of {', '.join(get_args(RewardMode))}.")
    if scorer is not None:
        check_scorer(scorer)
    if reward != "none" and scorer is None:
        raise ConfigError(
            f"the reward mode {reward!r} needs a scorer and none is given. Write {RULES_SCORER}; or "
            "scorer=ScoreEach(function) for a function from one trajectory to its Judgement; or reward='none'."
        )


RULES_SCORER = "scorer=RulesScorer(queries), from rubricem_env.judge, for the rules judge"
"""The line that a user writes for stage scores without a model."""


def check_scorer(scorer: object) -> None:
    """Refuse what does not score trajectories, with the line that makes a scorer of it.

    Raises:
        UsageError: it is a judge, a class, a function, or anything else without `async score(trajectories)`.
    """
    found = f"scorer is {_named(scorer)}"
    if isinstance(scorer, type):
        raise UsageError(f"{found}; a scorer is an object. Write {RULES_SCORER}, or an object of your own class.")
    if hasattr(scorer, "propose"):
        of_judge = "GroupScorer(StepJudge(judge, RubricBuffer()), {query.key: query for query in queries})"
        line = RULES_SCORER if type(scorer).__name__ == "RulesJudge" else f"scorer={of_judge}"
        raise UsageError(f"{found}; a judge scores one request, a scorer a group of trajectories. Write {line}.")
    if hasattr(scorer, "judge_group"):
        raise UsageError(f"{found}; write GroupScorer(step_judge, {{query.key: query for query in queries}}).")
    if not isinstance(scorer, Scorer) or not _takes_one_argument(scorer.score):
        raise UsageError(
            f"{found}; a scorer has `async score(trajectories)`. Write {RULES_SCORER}, or "
            "scorer=ScoreEach(function) for a function from one trajectory to its Judgement."
        )


def _named(value: object) -> str:
    kind = value.__name__ if isinstance(value, type) else type(value).__name__
    article = "an" if kind[:1].lower() in "aeiou" else "a"
    return f"the class {kind}" if isinstance(value, type) else f"{article} {kind}"


def _takes_one_argument(method: Callable[..., Any]) -> bool:
    """Whether `method` is a function that may be called with the trajectories alone."""
    try:
        inspect.signature(method).bind(())
    except TypeError:
        return False
    except ValueError:  # compiled, without a signature
        return True
    return True


async def score_with(scorer: Scorer, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
    """One judgement for each trajectory, in order.

    Raises:
        UsageError: the scorer returned something else.
    """
    scored: Any = scorer.score(trajectories)
    judgements = await scored if inspect.isawaitable(scored) else scored
    is_judged = isinstance(judgements, Sequence) and all(isinstance(judged, Judgement) for judged in judgements)
    if not is_judged or len(judgements) != len(trajectories):
        returned = f"{len(judgements)} judgements" if is_judged else _named(judgements)
        raise UsageError(
            f"{type(scorer).__name__}.score returned {returned} for {len(trajectories)} trajectories; it returns a "
            "list with one Judgement for each, such as [Judgement.of({Stage.ANSWER: StageScore(score=1.0)})]."
        )
    return tuple(judgements)


class Payout(NamedTuple):
    """What a step pays."""

    judgement: Judgement | None = None
    """The judgement with the scores of the stages; None where the step pays nothing."""
    stages: tuple[str, ...] = ()
    """The stages that the step pays."""


def stages_of(mode: RewardMode, scaffold: Scaffold = DEFAULT) -> tuple[str, ...]:
    """The stages that a whole episode is paid for."""
    return {"none": (), "answer": scaffold.names[-1:], "stagewise": scaffold.names}[mode]


def stages_to_score(episode: Episode, mode: RewardMode, scorer: Scorer | None) -> tuple[str, ...]:
    """The stages that this step pays to an episode that is alone with its question; empty where it pays nothing.

    A stage that its block closes, such as Plan, is paid on the step that writes it, the rest on the last step. With a
    scorer that gathers a group, all stages are paid on the last step: a plan is judged beside its group's plans.
    """
    whole = stages_of(mode, episode.scaffold)
    if not whole or (isinstance(scorer, GatheringScorer) and scorer.group_size > 1):
        return whole if episode.is_over else ()
    written = {stage: _turn_that_closes(episode, stage) for stage in whole}
    number = len(episode.turns)
    if episode.is_over:
        return tuple(stage for stage in whole if written[stage] in (0, number))
    return tuple(stage for stage in whole if written[stage] == number)


def _turn_that_closes(episode: Episode, stage: str) -> int:
    """The number of the turn whose block closes the stage; 0 where none does before the first tool call."""
    block = episode.scaffold.form(stage).ends_with
    if block is None:
        return 0
    first = next((number for number, turn in enumerate(episode.turns, 1) if turn.call or turn.first(block)), 0)
    return first if first and episode.turns[first - 1].first(block) is not None else 0


async def score_step(episode: Episode, mode: RewardMode, scorer: Scorer | None) -> Payout:
    """What this step pays."""
    if scorer is None:
        return Payout()
    stages = stages_to_score(episode, mode, scorer)
    if not stages:
        return Payout()
    judgements = await score_with(scorer, [episode.trajectory])
    return Payout(judgements[0], stages)


class Payments:
    """What one episode has been paid so far. No stage is paid twice."""

    def __init__(self, mode: RewardMode, scaffold: Scaffold = DEFAULT) -> None:
        self._stages = stages_of(mode, scaffold)
        self._all_stages = scaffold.names
        self._outcomes: dict[str, StageScore | Unscored] = {}

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that have been paid."""
        return tuple(self._outcomes)

    def pay(self, payout: Payout) -> Payout:
        """The part of a payout that was not paid before; it counts as paid from now on."""
        judgement, stages = payout
        if judgement is None:
            return Payout()
        owed = tuple(stage for stage in stages if stage not in self._outcomes)
        self._outcomes.update({stage: judgement.outcome(stage) for stage in owed})
        return Payout(judgement, owed)

    def info(self) -> Mapping[str, float | str | None]:
        """`score_info` of every stage that the mode pays; one that was not paid yet is unscored as "not_asked"."""
        return score_info(Judgement.of(self._outcomes, self._all_stages), self._stages)


def step_reward(judgement: Judgement | None, stages: tuple[str, ...]) -> float:
    """The sum of the scores. A missing score adds nothing; `info` gives the reason."""
    return sum((judgement.score(stage) or 0.0 for stage in stages), 0.0) if judgement is not None else 0.0


def score_info(judgement: Judgement | None, stages: tuple[str, ...]) -> dict[str, float | str | None]:
    """`score_<stage>` as a number or None, and `unscored_<stage>` as the reason or None, for the stages paid out."""
    info: dict[str, float | str | None] = {}
    if judgement is None:
        return info
    for stage in stages:
        outcome = judgement.outcome(stage)
        info[f"score_{stage}"] = outcome.score if isinstance(outcome, StageScore) else None
        info[f"unscored_{stage}"] = outcome.reason if isinstance(outcome, Unscored) else None
    return info
