"""The group of attempts at one question that are judged together."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from rubricem_env.domain.trajectory import Ending, Query, Trajectory
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory


class Group(NamedTuple):
    """All attempts at one question that are judged together, parsed."""

    query: Query
    trajectories: tuple[ParsedTrajectory, ...]

    @classmethod
    def of(cls, query: Query, attempts: Iterable[Trajectory | ParsedTrajectory]) -> "Group":
        """A group of attempts; one that has been parsed already is not parsed again."""
        return cls(
            query,
            tuple(
                attempt if isinstance(attempt, ParsedTrajectory) else parse_trajectory(attempt) for attempt in attempts
            ),
        )

    @property
    def key(self) -> str:
        return self.query.key

    @property
    def intact(self) -> tuple[int, ...]:
        """Indices of the attempts that no infrastructure failure ended: the others say nothing about the policy."""
        endings = (parsed.trajectory.ending for parsed in self.trajectories)
        return tuple(index for index, ending in enumerate(endings) if ending is not Ending.ABANDONED)

    @property
    def has_contrast(self) -> bool:
        """Whether two intact attempts differ: otherwise there is nothing to contrast."""
        return len({self.trajectories[index].policy_text for index in self.intact}) > 1

    @property
    def fingerprint(self) -> str:
        """A hash of the policy's texts and the question's own rubrics, in order."""
        digest = hashlib.sha256()
        for parsed in self.trajectories:
            digest.update(f"{len(parsed.policy_text)}\0{parsed.policy_text}".encode("utf-8", "replace"))
        digest.update("\0".join(rubric.id for rubric in self.query.rubrics).encode())
        return digest.hexdigest()[:16]
