"""Where an environment gets its rewards from, if it gets any."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.trajectory import Trajectory


class RewardMode(StrEnum):
    """What `step` returns as reward."""

    NONE = "none"
    """Always 0.0: the judge works on finished groups, outside the environment."""
    ANSWER = "answer"
    """The Answer stage's score on the last step."""
    STAGEWISE = "stagewise"
    """Each stage's score on the step that closes it: the plan's at once, the others' on the last step."""


@runtime_checkable
class Scorer(Protocol):
    """Scores trajectories of one question. A failure to score is an outcome with its reason, not an exception."""

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]: ...


class ScoreEach:
    """A plain function from one trajectory to its judgement, as a scorer."""

    def __init__(self, judge: Callable[[Trajectory], Judgement]) -> None:
        self._judge = judge

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """One judgement each, in order.

        Raises:
            UsageError: the function returns something else.
        """
        return [self._judgement_of(trajectory) for trajectory in trajectories]

    def _judgement_of(self, trajectory: Trajectory) -> Judgement:
        judgement = self._judge(trajectory)
        if not isinstance(judgement, Judgement):
            raise UsageError(
                f"the function of ScoreEach returned a {type(judgement).__name__}; it returns a Judgement, such as "
                "Judgement.of({Stage.ANSWER: StageScore(score=1.0)})."
            )
        return judgement


def read_reward_mode(reward: RewardMode | str, scorer: Scorer | None) -> RewardMode:
    """The mode by its name.

    Raises:
        ConfigError: there is no such mode, or it needs a scorer and none is given.
        UsageError: what is given as scorer cannot score.
    """
    names = [mode.value for mode in RewardMode]
    if reward not in names:
        raise ConfigError(f"the reward mode is {reward!r}; it is one of {', '.join(names)}.")
    mode = RewardMode(reward)
    if scorer is not None and not isinstance(scorer, Scorer):
        raise UsageError(
            f"scorer is a {type(scorer).__name__}; a scorer has `async score(trajectories)`. Write "
            "ScoreEach(function) for a function from one trajectory to its Judgement."
        )
    if mode is not RewardMode.NONE and scorer is None:
        raise ConfigError(
            f"the reward mode {mode.value!r} needs a scorer and none is given; pass scorer=..., "
            "for example ScoreEach(function), or use reward='none'."
        )
    return mode
