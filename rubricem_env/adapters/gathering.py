"""Brings siblings together: a library that scores episodes one by one still has its groups judged by contrast."""

import asyncio
import warnings
from collections.abc import Sequence

from rubricem_env.adapters.groups import CutGroupWarning
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.scoring import Scorer


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
