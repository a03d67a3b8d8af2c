"""A group: all attempts at one question that are judged together."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rubricem_env.domain.query import Query
from rubricem_env.domain.trajectory import Ending, Trajectory
from rubricem_env.scaffold.reading import Reading, read_trajectory


class Group(NamedTuple):
    """One question's attempts, read."""

    query: Query
    readings: tuple[Reading, ...]

    @classmethod
    def of(cls, query: Query, trajectories: Iterable[Trajectory]) -> "Group":
        return cls(query, tuple(read_trajectory(trajectory) for trajectory in trajectories))

    @property
    def key(self) -> str:
        return self.query.key

    @property
    def intact(self) -> tuple[int, ...]:
        """The places of the attempts that the infrastructure did not break off: the others tell nothing of the policy."""
        endings = (reading.trajectory.ending for reading in self.readings)
        return tuple(place for place, ending in enumerate(endings) if ending is not Ending.ABANDONED)

    @property
    def has_contrast(self) -> bool:
        """Whether there are two intact attempts that differ: without, there is nothing to tell apart."""
        return len({self.readings[place].policy_text for place in self.intact}) > 1

    @property
    def fingerprint(self) -> str:
        """Of what the policy wrote and of the question's own rubrics, in order."""
        told = hashlib.sha256()
        for reading in self.readings:
            told.update(f"{len(reading.policy_text)}\0{reading.policy_text}".encode("utf-8", "replace"))
        told.update("\0".join(rubric.id for rubric in self.query.rubrics).encode())
        return told.hexdigest()[:16]


class Merged(NamedTuple):
    """Groups with each question once, and where each original group's rollouts are."""

    groups: tuple[Group, ...]
    places: tuple[tuple[str, int, int], ...]
    """For each original group: its key, and the slice of the merged group's rollouts."""


def merge_groups(groups: Sequence[Group]) -> Merged:
    """Groups of the same question become one, so that it is contrasted and scored once (choice B17)."""
    merged: dict[str, Group] = {}
    places = []
    for group in groups:
        earlier = merged.get(group.key)
        before = earlier.readings if earlier else ()
        merged[group.key] = Group(earlier.query if earlier else group.query, before + group.readings)
        places.append((group.key, len(before), len(before) + len(group.readings)))
    return Merged(tuple(merged.values()), tuple(places))
