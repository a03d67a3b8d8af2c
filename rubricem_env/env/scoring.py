"""Where an environment gets its rewards from, if it gets any."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from rubricem_env.domain.errors import ConfigError
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


class Scorer(Protocol):
    """Scores trajectories of one question. A failure to score is an outcome with its reason, not an exception."""

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]: ...


class ScoreEach:
    """A plain function from one trajectory to its judgement, as a scorer."""

    def __init__(self, judge: Callable[[Trajectory], Judgement]) -> None:
        self._judge = judge

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        return [self._judge(trajectory) for trajectory in trajectories]


def read_reward_mode(reward: RewardMode | str, scorer: Scorer | None) -> RewardMode:
    """The mode by its name.

    Raises:
        ConfigError: there is no such mode, or it needs a scorer and none is given.
    """
    names = [mode.value for mode in RewardMode]
    if reward not in names:
        raise ConfigError(f"the reward mode is {reward!r}; it is one of {', '.join(names)}.")
    mode = RewardMode(reward)
    if mode is not RewardMode.NONE and scorer is None:
        raise ConfigError(
            f"the reward mode {mode.value!r} needs a scorer and none is given; pass scorer=..., "
            "for example ScoreEach(function), or use reward='none'."
        )
    return mode
