"""One episode as a library steps it: text in, text out, and at the end the scores of all four stages.

A batch of attempts in a trainer's hands: which belong together, and what stage credit is worked out from.

Stages by turns, for libraries that pay or train by the turn.

Says at import when a library is not the one that an adapter was tested with.

Brings siblings together: a library that scores episodes one by one still has its groups judged by contrast.

An attempt as a trainer needs it: the trajectory with its tokens, as the policy drew them.

What the snippets of the adapters begin with: the almanac, judged by rules, with no model and no network.
"""

import asyncio
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from packaging.specifiers import SpecifierSet

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import MissingExtraError, OrderError, UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.trajectory import Ending, Query, Trajectory
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
from rubricem_env.env.step import advance, step_info
from rubricem_env.judge.pipeline import GroupScorer, StepJudge
from rubricem_env.judge.rubrics import RubricBuffer
from rubricem_env.judge.rules_judge import RulesJudge
from rubricem_env.scaffold.reading import Reading, read_trajectory
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


class EpisodeSession:
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


NO_STAGE = -1
"""The stage id of prompt, tool and padding tokens."""


class CutGroupWarning(UserWarning):
    """A group was judged with fewer attempts than it should have."""


class RetokenisedError(UsageError):
    """A trainer holds other tokens than the policy wrote: their stages and log-probabilities are no longer theirs."""


class JudgedRows(NamedTuple):
    """A batch after judging; one entry for each attempt."""

    judgements: tuple[Judgement, ...]
    groups: tuple[int, ...]
    """Which attempts are at the same question."""
    valid: tuple[bool, ...]
    """False where the infrastructure, not the policy, ended the episode."""
    stage_ids: npt.NDArray[np.int8]
    """(attempts, tokens): 0 to 3 where the policy wrote, else `NO_STAGE`; padded on the right."""


Advantages = Callable[[JudgedRows], npt.NDArray[np.float32]]
"""From judged rows to the advantage of each token, of the shape of `stage_ids`; credit lives with the agent."""


def group_places(keys: Sequence[str], group_size: int) -> list[list[int]]:
    """The places of each query key, in the order in which the keys come; warns of groups that are not whole."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[key].append(place)
    cut = [len(group) for group in places.values() if len(group) % group_size]
    if cut:
        warnings.warn(
            f"{len(cut)} of {len(places)} groups were cut short: the first has {cut[0]} attempts where {group_size} "
            "were to be contrasted. Let each process hold whole groups: make its batch a multiple of the group size.",
            CutGroupWarning,
            stacklevel=3,
        )
    return list(places.values())


def pad_stage_ids(rows: Sequence[Sequence[int]]) -> npt.NDArray[np.int8]:
    """Rows of stage ids as one array."""
    padded = np.full((len(rows), max(map(len, rows), default=0)), NO_STAGE, dtype=np.int8)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return padded


def refuse_retokenised(written: Sequence[Sequence[int]], held: Sequence[Sequence[int]], *, trainer: str) -> None:
    """Compare the tokens that the policy wrote with those that a trainer holds, each row cut to its written length.

    Raises:
        RetokenisedError: a row differs; the message says which and where.
    """
    for row, (ours, theirs) in enumerate(zip(written, held, strict=True)):
        if list(ours) == list(theirs):
            continue
        pairs = enumerate(zip(ours, theirs, strict=False))
        place = next((at for at, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
        raise RetokenisedError(
            f"{trainer} holds other tokens than the policy wrote: row {row} differs from token {place} on. It decodes "
            "and tokenises again; pass the ids through, or train without stage advantages."
        )


def turn_rewards(trajectory: Trajectory, judgement: Judgement) -> list[float | None]:
    """For each turn the sum of the scores of the stages that end in it; None where no scored stage does.

    A stage that never happened has no turn and adds nothing; review and answer mostly end in the same one.
    """
    reading = read_trajectory(trajectory)
    ends = _ends(reading)
    rewards: list[float | None] = [None] * len(ends)
    for stage in STAGES:
        spans, score = reading.spans.of(stage), judgement.score(stage)
        if spans and score is not None:
            turn = next(place for place, end in enumerate(ends) if spans[-1].end <= end)
            rewards[turn] = (rewards[turn] or 0.0) + score
    return rewards


def turns_of_stage(trajectory: Trajectory, stage: Stage) -> set[int]:
    """The turns in which the stage has text, counted from 0; a turn may belong to several stages."""
    reading = read_trajectory(trajectory)
    ends = _ends(reading)
    turns = list(enumerate(zip([0, *ends], ends, strict=False)))
    spans = reading.spans.of(stage)
    return {place for span in spans for place, (start, end) in turns if span.start < end and start < span.end}


def _ends(reading: Reading) -> list[int]:
    """Where each turn ends in the policy's joined text."""
    return list(accumulate(len(turn.text) for turn in reading.turns))


class UntestedVersionWarning(UserWarning):
    """A library's version lies outside the range that its adapter was tested with. It may work."""


def require_tested(package: str, tested: str, *, extra: str) -> None:
    """Look at the installed version; a warning with the range where it lies outside.

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
            f"Install such a version if something does not fit: pip install '{package}{tested}'",
            UntestedVersionWarning,
            stacklevel=4,
        )


class _Gathering:
    """The attempts at one question that have come in so far."""

    def __init__(self) -> None:
        self.trajectories: list[Trajectory] = []
        self.is_whole = asyncio.Event()
        self.judged: asyncio.Task[Sequence[Judgement]] | None = None


class GatheringScorer:
    """Holds each finished episode back until `group_size` attempts at its question are in, and scores them together.

    After `patience` seconds the ones that came are scored without the rest, with a `CutGroupWarning`. An episode that
    still runs is not held back. All calls come from one event loop.
    """

    def __init__(self, scorer: Scorer, group_size: int, *, patience: float = 600.0) -> None:
        if group_size < 1 or patience <= 0:
            raise UsageError(f"group_size is {group_size} and patience {patience} s; they are at least 1 and above 0.")
        self._scorer = scorer
        self._group_size = group_size
        self._patience = patience
        self._open: dict[str, _Gathering] = {}

    async def score(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        """The judgements of these attempts, made within their whole group."""
        if len(trajectories) != 1 or trajectories[0].ending is None:
            return await self._scorer.score(trajectories)
        key = trajectories[0].query_key
        gathering = self._open.setdefault(key, _Gathering())
        place = len(gathering.trajectories)
        gathering.trajectories.append(trajectories[0])
        if len(gathering.trajectories) == self._group_size:
            self._close(key, gathering)
        await self._wait(key, gathering)
        if gathering.judged is None:
            gathering.judged = asyncio.ensure_future(self._judge(gathering.trajectories))
        # Shielded: one attempt that is cancelled does not take the others' scores with it.
        return [(await asyncio.shield(gathering.judged))[place]]

    async def _judge(self, trajectories: Sequence[Trajectory]) -> Sequence[Judgement]:
        return await self._scorer.score(trajectories)

    async def _wait(self, key: str, gathering: _Gathering) -> None:
        try:
            await asyncio.wait_for(gathering.is_whole.wait(), self._patience)
        except TimeoutError:
            if not gathering.is_whole.is_set():
                self._close(key, gathering)
                warnings.warn(
                    f"a group of {self._group_size} was cut short: {len(gathering.trajectories)} attempts came within "
                    f"{self._patience:g} s and are judged without the rest.",
                    CutGroupWarning,
                    stacklevel=2,
                )

    def _close(self, key: str, gathering: _Gathering) -> None:
        """No further attempt joins this group."""
        del self._open[key]
        gathering.is_whole.set()


class Tokens(Protocol):
    """The tokens of an attempt, one entry each from the prompt to the end; the agent's `RolloutTokens` are such."""

    @property
    def ids(self) -> Sequence[int]: ...

    @property
    def stage_ids(self) -> Sequence[int]: ...

    @property
    def logprobs(self) -> Sequence[float]: ...

    @property
    def prompt_length(self) -> int: ...


class Played(Protocol):
    """One attempt; the agent's `Rollout` is such."""

    @property
    def trajectory(self) -> Trajectory: ...

    @property
    def tokens(self) -> Tokens | None: ...

    @property
    def is_valid(self) -> bool: ...


class Completion(NamedTuple):
    """What the policy and the tools wrote after the prompt."""

    ids: list[int]
    stage_ids: list[int]
    logprobs: list[float]


def tokens_of(attempt: Played) -> Tokens:
    """Its tokens.

    Raises:
        UsageError: the policy has no token mode.
    """
    if attempt.tokens is None:
        raise UsageError("the policy gave no tokens; training needs one with a token mode, such as LocalPolicy.")
    return attempt.tokens


def completion_of(attempt: Played) -> Completion:
    """All after the prompt; never empty."""
    tokens = tokens_of(attempt)
    start = tokens.prompt_length
    if len(tokens.ids) == start:
        # An episode that failed before its first token: trainers want one, and it is masked.
        return Completion([tokens.ids[-1]], [NO_STAGE], [0.0])
    return Completion(list(tokens.ids[start:]), list(tokens.stage_ids[start:]), list(tokens.logprobs[start:]))


def policy_runs(stage_ids: Sequence[int]) -> list[tuple[int, int]]:
    """Where the policy wrote, as [start, end) of each turn: between two turns stands what it read."""
    is_policy = [False, *(stage != NO_STAGE for stage in stage_ids), False]
    edges = [place for place, (before, after) in enumerate(pairwise(is_policy)) if before != after]
    return list(zip(edges[::2], edges[1::2], strict=True))


def offline_scorer(queries: Sequence[Query] | None = None) -> GroupScorer:
    """The judge of the stage-aware rubrics with rules in place of a model; `queries` bring their persistent rubrics."""
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
    """A setup over the shipped tools. With a `group_size` above 1 so many attempts at a question are judged together.

    Raises:
        ConfigError: the reward mode is unknown.
        UsageError: group size or patience make no sense.
    """
    chosen = offline_queries() if queries is None else tuple(queries)
    scorer = GatheringScorer(offline_scorer(chosen), group_size, patience=patience)
    return make_setup(queries=chosen, reward=reward, scorer=scorer, prompt=prompt)
