"""One episode as a library steps it: text in, text out, and at the end the scores of all four stages."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from rubricem_env.domain.errors import OrderError, UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.query import Query
from rubricem_env.domain.stage import STAGES
from rubricem_env.domain.trajectory import Ending, Trajectory
from rubricem_env.env.drive import advance, step_info
from rubricem_env.env.episode import Episode, Finished
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.env.offline import offline_queries, shipped_toolbox
from rubricem_env.env.research_env import question_prompt
from rubricem_env.env.reward import score_info, score_step, stages_to_score, step_reward
from rubricem_env.env.scoring import RewardMode, Scorer, read_reward_mode
from rubricem_env.tools.base import Toolbox


class Setup(NamedTuple):
    """What all episodes of an adapter have in common; `make_setup` checks it and fills in the offline world."""

    queries: Mapping[str, Query]
    """By query key: what a library names a question by in its data sets."""
    toolbox: Toolbox
    limits: EpisodeLimits
    mode: RewardMode
    scorer: Scorer | None
    prompt: Callable[[Query], str]

    def query(self, key: str) -> Query:
        """A question by its key.

        Raises:
            UsageError: there is none.
        """
        found = self.queries.get(key)
        if found is None:
            raise UsageError(
                f"the query key is {key!r}; it names none of the {len(self.queries)} questions of this environment. "
                "Pass the query_key of a row of its data set."
            )
        return found


def make_setup(
    *,
    queries: Sequence[Query] | None = None,
    toolbox: Toolbox | None = None,
    limits: EpisodeLimits | None = None,
    reward: RewardMode | str = RewardMode.NONE,
    scorer: Scorer | None = None,
    prompt: Callable[[Query], str] = question_prompt,
) -> Setup:
    """A setup; what is left out is the shipped almanac, the paper's limits and no reward.

    Raises:
        ConfigError: the reward mode is unknown, or needs a scorer.
    """
    chosen = offline_queries() if queries is None else tuple(queries)
    return Setup(
        {query.key: query for query in chosen},
        shipped_toolbox() if toolbox is None else toolbox,
        limits or EpisodeLimits(),
        read_reward_mode(reward, scorer),
        scorer,
        prompt,
    )


class SessionStep(NamedTuple):
    """What one emission led to."""

    observation: str
    reward: float
    """What this step pays under the setup's mode."""
    is_over: bool
    info: dict[str, Any]
    """The facts of `step_info`; when over also `score_<stage>` and `unscored_<stage>` for all four stages."""

    @property
    def answered(self) -> bool:
        """Whether the policy ended the episode, rather than a limit."""
        return bool(self.info["ending"] == Ending.ANSWERED.value)


class Session:
    """One episode. Asynchronous: the libraries that block have a loop in a thread (`LoopThread`)."""

    def __init__(self, setup: Setup, query: Query, *, seed: int | None = None) -> None:
        self.setup = setup
        self.prompt = setup.prompt(query)
        self.judgement: Judgement | None = None
        self._episode = Episode(query, prompt=self.prompt, limits=setup.limits, seed=seed)

    @property
    def trajectory(self) -> Trajectory:
        """The record so far."""
        return self._episode.trajectory

    @property
    def is_over(self) -> bool:
        return self._episode.is_over

    async def step(self, text: str) -> SessionStep:
        """Take the policy's next turn; at the end the whole trajectory is scored once, whatever the mode pays.

        Raises:
            OrderError: the episode is over.
        """
        setup, episode = self.setup, self._episode
        if episode.is_over:
            raise OrderError("the episode is over; start another instead of stepping on.")
        reply = await advance(episode, setup.toolbox, text)
        if not isinstance(reply, Finished):
            early = await score_step(episode, setup.mode, setup.scorer)
            paid = stages_to_score(episode, setup.mode)
            return SessionStep(reply.observation, step_reward(early, paid), False, step_info(episode))
        if setup.scorer is not None:
            self.judgement = (await setup.scorer.score([episode.trajectory]))[0]
        info = {**step_info(episode), **score_info(self.judgement, STAGES)}
        paid = stages_to_score(episode, setup.mode)
        return SessionStep(reply.observation, step_reward(self.judgement, paid), True, info)

    def abandon(self) -> None:
        """The library gave up on it; safe to call twice."""
        self._episode.abandon()
