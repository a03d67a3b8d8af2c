"""The tokens of a rollout: for each its id, its log-probability, and its stage where the policy wrote it.

Stages come from the character spans of `find_boundaries`, the same that the judge reads: a token that straddles
a boundary belongs to the stage in which it begins. A token that ends the policy's turn belongs with the text before it.
`PackedTokens` is the compact form in a run's record.
"""

import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import Annotated, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from rubricem_agent.policy.base import TokenSegment
from rubricem_env.domain.base import Frozen, Stage, StageSpans, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.scaffold.turn import Turn

NO_STAGE = -1
"""The stage id of prompt, tool and padding tokens: no stage, and not trained on."""
Number = TypeVar("Number", bound=np.generic)


class RolloutTokens(Frozen):
    """One entry for each token of the conversation, from the prompt to the end."""

    ids: tuple[int, ...]
    stage_ids: tuple[int, ...]
    """0 to 3 where the policy wrote, -1 elsewhere."""
    logprobs: tuple[float, ...]
    """As drawn, under the temperature of the sampling; 0 where the policy did not write."""
    prompt_length: int

    @model_validator(mode="after")
    def _has_one_entry_each(self) -> "RolloutTokens":
        sizes = {len(self.ids), len(self.stage_ids), len(self.logprobs)}
        if len(sizes) != 1:
            raise ValueError(f"ids, stage_ids and logprobs have {sorted(sizes)} entries; they need one for each token")
        return self

    @property
    def policy_mask(self) -> npt.NDArray[np.bool_]:
        """(tokens,): what the policy wrote, the only tokens that are trained on."""
        stages: npt.NDArray[np.int8] = np.array(self.stage_ids, dtype=np.int8)
        return np.not_equal(stages, NO_STAGE)


def stage_lookup(spans: StageSpans) -> Callable[[int], Stage]:
    """The stage of a character of the policy's text; beyond the end, the last one; without any text, Research."""
    ordered = sorted((span.start, stage) for stage, span in spans.items())
    starts = [start for start, _ in ordered]

    def stage_at(character: int) -> Stage:
        index = bisect_right(starts, character) - 1
        return ordered[index][1] if index >= 0 else Stage.RESEARCH

    return stage_at


def label_tokens(pieces: Sequence[TokenSegment], turns: Sequence[Turn], *, spans: StageSpans) -> RolloutTokens:
    """The conversation's tokens with their stages; `turns` are those of the episode, one for each policy piece."""
    stage_at = stage_lookup(spans)
    ids: list[int] = []
    stage_ids: list[int] = []
    logprobs: list[float] = []
    offsets = iter(_turn_offsets(pieces, turns))
    for piece in pieces:
        ids += piece.ids
        if not piece.is_policy:
            stage_ids += [NO_STAGE] * len(piece.ids)
            logprobs += [0.0] * len(piece.ids)
            continue
        offset, end = next(offsets)
        stage_ids += [stage_at(min(offset + start, max(end - 1, 0))).position for start in piece.starts]
        logprobs += piece.logprobs
    prompt_length = len(pieces[0].ids) if pieces else 0
    return RolloutTokens(
        ids=tuple(ids), stage_ids=tuple(stage_ids), logprobs=tuple(logprobs), prompt_length=prompt_length
    )


def _turn_offsets(pieces: Sequence[TokenSegment], turns: Sequence[Turn]) -> list[tuple[int, int]]:
    """Where the text of each policy piece begins and ends in the policy's whole text."""
    written = sum(piece.is_policy for piece in pieces)
    if written != len(turns):
        raise ValueError(f"{written} policy pieces do not fit the {len(turns)} turns of the episode")
    ends = list(accumulate(len(turn.text) for turn in turns))
    return list(zip([0, *ends], ends, strict=False))


_LARGEST = float(np.finfo(np.float16).max)


class PackedTokens(Frozen):
    """All tokens of one rollout in a few bytes each, to display and not to train on: float16 keeps three digits.

    Ids are little-endian int32 and log-probabilities float16, both in base64; stages are runs of equal ones.
    """

    length: Annotated[int, Field(ge=0)]
    prompt_length: Annotated[int, Field(ge=0)]
    ids: Text
    logprobs: Text
    runs: tuple[tuple[int, int], ...]
    """Runs of equal stages: the stage and its number of consecutive tokens."""

    def unpack(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8], npt.NDArray[np.float16]]:
        """Ids, stages (0 to 3 where the policy wrote, -1 elsewhere) and log-probabilities, one entry for each token.

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
        return ids.astype(np.int32), stages, logprobs.astype(np.float16)


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


def pad_rows(rows: Sequence[npt.ArrayLike], fill: float, *, dtype: type[Number]) -> npt.NDArray[Number]:
    """Rows of one number a token as one array, padded on the right."""
    arrays = [np.asarray(row, dtype=dtype) for row in rows]
    filled = np.full((len(arrays), max(map(len, arrays), default=0)), fill, dtype=dtype)
    for row, values in zip(filled, arrays, strict=True):
        row[: len(values)] = values
    return filled
