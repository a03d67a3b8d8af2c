"""The tokens of a rollout in a few bytes each, for a record that is looked at later.

Ids are little-endian int32 and log-probabilities float16, both in base64; stages are runs of equal ones. Enough to
show, not to train on: float16 keeps three digits.
"""

import base64
import binascii
from itertools import groupby
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rubricem_agent.rollout.tokens import RolloutTokens
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError

_LARGEST = float(np.finfo(np.float16).max)


class TokenColumns(NamedTuple):
    """One entry for each token."""

    ids: npt.NDArray[np.int32]
    stages: npt.NDArray[np.int8]
    """0 to 3 where the policy wrote, -1 elsewhere."""
    logprobs: npt.NDArray[np.float16]


class PackedTokens(Frozen):
    """All tokens of one rollout."""

    length: Annotated[int, Field(ge=0)]
    prompt_length: Annotated[int, Field(ge=0)]
    ids: Text
    logprobs: Text
    runs: tuple[tuple[int, int], ...]
    """Stage and how many tokens of it follow one another."""

    def unpack(self) -> TokenColumns:
        """The columns.

        Raises:
            FileFormatError: they are not all of the length that is named.
        """
        try:
            ids = np.frombuffer(base64.b64decode(self.ids, validate=True), dtype="<i4")
            logprobs = np.frombuffer(base64.b64decode(self.logprobs, validate=True), dtype="<f2")
            stages = np.repeat(
                np.array([stage for stage, _ in self.runs], dtype=np.int8), [count for _, count in self.runs]
            )
        except (binascii.Error, ValueError) as cause:
            raise FileFormatError(f"the packed tokens of a rollout are damaged: {cause}.") from cause
        if {len(ids), len(logprobs), len(stages)} != {self.length}:
            sizes = f"{len(ids)}, {len(logprobs)} and {len(stages)}"
            raise FileFormatError(f"the packed tokens of a rollout name {self.length} tokens and hold {sizes}.")
        return TokenColumns(ids.astype(np.int32), stages, logprobs.astype(np.float16))


def pack_tokens(tokens: RolloutTokens) -> PackedTokens:
    """The same tokens, packed."""
    logprobs = np.clip(np.array(tokens.logprobs, dtype=np.float64), -_LARGEST, _LARGEST)
    return PackedTokens(
        length=len(tokens.ids),
        prompt_length=tokens.prompt_length,
        ids=_encode(np.array(tokens.ids, dtype="<i4")),
        logprobs=_encode(logprobs.astype("<f2")),
        runs=tuple((stage, len(list(run))) for stage, run in groupby(tokens.stage_ids)),
    )


def _encode(column: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(column.tobytes()).decode("ascii")
