"""Episodes for other RL libraries: what every adapter shares.

- `Setup` and `EpisodeSession`: one episode as a library steps it, text in and text out, scored at the end.
- Batches of attempts: groups of one question, stage ids, and rewards by turn.
- `GatheringScorer`: judges whole groups where a library scores one episode at a time.
- The tokens of attempts, and the check of a library's version.
- `offline_setup`: the shipped almanac judged by rules, without model or network.
"""

import asyncio
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from packaging.specifiers import SpecifierSet

from rubricem_env.domain.base import STAGES, Span, Stage
from rubricem_env.domain.errors import MissingExtraError, UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.trajectory import Query, Trajectory
from rubricem_env.env.episode import Episode, EpisodeLimits, Finished
from rubricem_env.env.research_env import offline_queries, question_prompt, shipped_toolbox
from rubricem_env.env.rewards import (
    RewardMode,
    Scorer,
    read_reward_mode,
    score_info,
    score_step,
    stages_to_score,
    step_reward,
)
from rubricem_env.env.step import StepOutcome, advance, step_outcome
from rubricem_env.judge.pipeline import GroupScorer, StepJudge
from rubricem_env.judge.rubrics import RubricBuffer
from rubricem_env.judge.rules_judge import RulesJudge
from rubricem_env.scaffold.reading import Reading, read_trajectory
from rubricem_env.tools.base import Toolbox


class Setup(NamedTuple):
    """What all episodes of an adapter share; `make_setup` checks it and fills in the offline world."""

    queries: Mapping[str, Query]
    """By query key, which names a question in a library's data sets."""
    toolbox: Toolbox
    limits: EpisodeLimits
    mode: RewardMode
    scorer: Scorer | None
    prompt: Callable[[Query], str]

    def query(self, key: str) -> Query:
        """A question by its key.

        Raises:
            UsageError: the key is unknown.
        """
        query = self.queries.get(key)
        if query is None:
            raise UsageError(
                f"the query key is {key!r}; it names none of the {len(self.queries)} questions of this environment. "
                "Pass the query_key of a row of its data set."
            )
        return query


def make_setup(
    *,
    queries: Sequence[Query] | None = None,
    toolbox: Toolbox | None = None,
    limits: EpisodeLimits | None = None,
    reward: RewardMode | str = RewardMode.NONE,
    scorer: Scorer | None = None,
    prompt: Callable[[Query], str] = question_prompt,
) -> Setup:
    """A setup; the defaults are the shipped almanac, the paper's limits and no reward.

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


class EpisodeSession:
    """One episode. Asynchronous; for a library that blocks, run it in a `LoopThread`."""

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

    async def step(self, text: str) -> StepOutcome:
        """Take the policy's next turn. At the end the whole trajectory is scored once, whatever the mode pays.

        The `info` of the last step also has `score_<stage>` and `unscored_<stage>` for all four stages.

        Raises:
            UsageError: the episode is over.
        """
        setup, episode = self.setup, self._episode
        if episode.is_over:
            raise UsageError("the episode is over; start another one instead of stepping again.")
        reply = await advance(episode, setup.toolbox, text)
        if not isinstance(reply, Finished):
            payout = await score_step(episode, setup.mode, setup.scorer)
            return step_outcome(episode, reply, reward=step_reward(*payout), scores={})
        if setup.scorer is not None:
            self.judgement = (await setup.scorer.score([episode.trajectory]))[0]
        reward = step_reward(self.judgement, stages_to_score(episode, setup.mode))
        return step_outcome(episode, reply, reward=reward, scores=score_info(self.judgement, STAGES))

    def abandon(self) -> None:
        """End the episode because the library stops it; safe to call twice."""
        self._episode.abandon()


NO_STAGE = -1
"""The stage id of prompt, tool and padding tokens."""


class AdapterWarning(UserWarning):
    """A group is incomplete, or a library's version is not the tested one."""


class JudgedRows(NamedTuple):
    """A batch after judging; one entry for each attempt."""

    judgements: tuple[Judgement, ...]
    groups: tuple[int, ...]
    """Equal numbers for attempts at the same question."""
    valid: tuple[bool, ...]
    """False where an infrastructure failure ended the episode."""
    stage_ids: npt.NDArray[np.int8]
    """(attempts, tokens): 0 to 3 where the policy wrote, else `NO_STAGE`; padded on the right."""


Advantages = Callable[[JudgedRows], npt.NDArray[np.float32]]
"""From judged rows to the advantage of each token, in the shape of `stage_ids`; the agent computes credit."""


def group_by_query(keys: Sequence[str], group_size: int) -> list[list[int]]:
    """The indices of each query key, in order of first appearance; warns of incomplete groups."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        groups[key].append(index)
    incomplete = [len(group) for group in groups.values() if len(group) % group_size]
    if incomplete:
        warnings.warn(
            f"{len(incomplete)} of {len(groups)} groups are incomplete: the first has {incomplete[0]} attempts instead "
            f"of {group_size}. Give each process whole groups: make its batch a multiple of the group size.",
            AdapterWarning,
            stacklevel=3,
        )
    return list(groups.values())


def pad_stage_ids(rows: Sequence[Sequence[int]]) -> npt.NDArray[np.int8]:
    """Rows of stage ids as one array."""
    padded = np.full((len(rows), max(map(len, rows), default=0)), NO_STAGE, dtype=np.int8)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return padded


def refuse_retokenised(written: Sequence[Sequence[int]], held: Sequence[Sequence[int]], *, trainer: str) -> None:
    """Compare the policy's tokens with those of a trainer, each row truncated to its written length.

    Stages and log-probabilities belong to the policy's tokens alone.

    Raises:
        UsageError: a row differs; the message says which and where.
    """
    for row, (ours, theirs) in enumerate(zip(written, held, strict=True)):
        if list(ours) == list(theirs):
            continue
        pairs = enumerate(zip(ours, theirs, strict=False))
        index = next((index for index, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
        raise UsageError(
            f"{trainer} holds other tokens than the policy wrote: row {row} differs from token {index} on. It decodes "
            "and tokenises again; pass the ids through, or train without stage advantages."
        )


def turn_rewards(trajectory: Trajectory, judgement: Judgement) -> list[float | None]:
    """For each turn, the sum of the scores of the stages that end in it; None if no scored stage does.

    A stage without text adds nothing. Review and answer usually end in the same turn.
    """
    reading = read_trajectory(trajectory)
    ends = _ends(reading)
    rewards: list[float | None] = [None] * len(ends)
    for stage in STAGES:
        span, score = reading.spans.get(stage), judgement.score(stage)
        if span and score is not None:
            turn = next(number for number, end in enumerate(ends) if span.end <= end)
            rewards[turn] = (rewards[turn] or 0.0) + score
    return rewards


def turns_of_stage(trajectory: Trajectory, stage: Stage) -> set[int]:
    """The turns in which the stage has text, counted from 0; a turn may belong to several stages."""
    reading = read_trajectory(trajectory)
    ends = _ends(reading)
    span = reading.spans.get(stage, Span(0, 0))
    turns = enumerate(zip([0, *ends], ends, strict=False))
    return {number for number, (start, end) in turns if span.start < end and start < span.end}


def _ends(reading: Reading) -> list[int]:
    """Where each turn ends in the policy's joined text."""
    return list(accumulate(len(turn.text) for turn in reading.turns))


def require_tested(package: str, tested: str, *, extra: str) -> None:
    """Check the installed version, and warn if it is outside the tested range.

    Raises:
        MissingExtraError: the package is not installed.
    """
    try:
        installed = version(package)
    except PackageNotFoundError as cause:
        raise MissingExtraError(package, extra, f"the {extra} adapter") from cause
    warn_if_untested(package, installed, tested)


def warn_if_untested(package: str, installed: str, tested: str) -> None:
    """Warn if `installed` is not among the versions `tested`, a specifier such as ">=1.16,<1.17"."""
    if not SpecifierSet(tested).contains(installed, prereleases=True):
        warnings.warn(
            f"{package} {installed} is installed; the adapter was tested with {package} {tested}. "
            f"If something fails, install a tested version: pip install '{package}{tested}'",
            AdapterWarning,
            stacklevel=4,
        )


Judging = asyncio.Task[Sequence[Judgement]]


class GatheringScorer:
    """Buffers finished episodes until `group_size` attempts at the question are complete, and scores them together.

    After `patience` seconds the group is scored without the missing attempts, with an `AdapterWarning`. An episode
    that is still running is scored at once. All calls come from one event loop.
    """

    def __init__(self, scorer: Scorer, group_size: int, *, patience: float = 600.0) -> None:
        if group_size < 1 or patience <= 0:
            raise UsageError(
                f"group_size is {group_size} and patience {patience} s; they must be at least 1 and above 0."
            )
        self._scorer = scorer
        self._group_size = group_size
        self._patience = patience
        self._open: dict[str, tuple[list[Trajectory], asyncio.Future[Judging]]] = {}
        """By query key, the attempts that wait, and the task that will judge them once the group is closed."""

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
        if len(attempts) == self._group_size:
            self._close(key)
        try:
            await asyncio.wait_for(asyncio.shield(closed), self._patience)
        except TimeoutError:
            if not closed.done():
                self._close(key)
                warnings.warn(
                    f"a group of {self._group_size} is incomplete: {len(attempts)} attempts came within "
                    f"{self._patience:g} s and are judged without the rest.",
                    AdapterWarning,
                    stacklevel=2,
                )
        # Shielded: cancelling one attempt does not lose the scores of the others.
        return [(await asyncio.shield(closed.result()))[index]]

    def _close(self, key: str) -> None:
        """Judge the group; no further attempt joins it."""
        attempts, closed = self._open.pop(key)
        closed.set_result(asyncio.ensure_future(self._judge(attempts)))

    async def _judge(self, attempts: Sequence[Trajectory]) -> Sequence[Judgement]:
        return await self._scorer.score(attempts)


class Tokens(Protocol):
    """The tokens of an attempt, prompt included, one entry each; the agent's `RolloutTokens` implements it."""

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def stage_ids(self) -> Sequence[int]: ...

    @property
    def logprobs(self) -> Sequence[float]: ...

    @property
    def prompt_length(self) -> int: ...


class Played(Protocol):
    """One attempt; the agent's `Rollout` implements it."""

    @property
    def trajectory(self) -> Trajectory: ...

    @property
    def tokens(self) -> Tokens | None: ...

    @property
    def is_valid(self) -> bool: ...


def tokens_of(attempt: Played) -> Tokens:
    """The attempt's tokens.

    Raises:
        UsageError: the policy has no token mode.
    """
    if attempt.tokens is None:
        raise UsageError("the policy gave no tokens; training needs one with a token mode, such as LocalPolicy.")
    return attempt.tokens


def completion_of(attempt: Played) -> tuple[list[int], list[int], list[float]]:
    """The ids, stage ids and log-probabilities of all tokens after the prompt; never empty."""
    tokens = tokens_of(attempt)
    start = tokens.prompt_length
    if len(tokens.ids) == start:
        # The episode failed before its first token. Trainers need at least one, and this one is masked.
        return [tokens.ids[-1]], [NO_STAGE], [0.0]
    return list(tokens.ids[start:]), list(tokens.stage_ids[start:]), list(tokens.logprobs[start:])


def policy_runs(stage_ids: Sequence[int]) -> list[tuple[int, int]]:
    """The policy's turns as [start, end) of tokens; the tokens between two turns are what it read."""
    is_policy = [False, *(stage != NO_STAGE for stage in stage_ids), False]
    edges = [index for index, (before, after) in enumerate(pairwise(is_policy)) if before != after]
    return list(zip(edges[::2], edges[1::2], strict=True))


def offline_scorer(queries: Sequence[Query] | None = None) -> GroupScorer:
    """The judge of the stage-aware rubrics, by rules instead of a model, with the persistent rubrics of `queries`."""
    chosen = offline_queries() if queries is None else queries
    return GroupScorer(StepJudge(RulesJudge(), RubricBuffer()), {query.key: query for query in chosen})


def offline_setup(
    *,
    queries: Sequence[Query] | None = None,
    reward: RewardMode | str = RewardMode.ANSWER,
    group_size: int = 1,
    patience: float = 600.0,
    prompt: Callable[[Query], str] = question_prompt,
) -> Setup:
    """A setup over the shipped tools. `group_size` attempts at a question are judged together.

    Raises:
        ConfigError: the reward mode is unknown.
        UsageError: the group size is below 1, or the patience is not positive.
    """
    chosen = offline_queries() if queries is None else tuple(queries)
    scorer = GatheringScorer(offline_scorer(chosen), group_size, patience=patience)
    return make_setup(queries=chosen, reward=reward, scorer=scorer, prompt=prompt)
