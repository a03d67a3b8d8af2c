"""A batch of attempts in a trainer's hands: which belong together, and what stage credit is worked out from."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement

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
