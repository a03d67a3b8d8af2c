"""The tokens of a rollout in the compact form of a run's record."""

import base64
import binascii
from itertools import groupby
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_records.rollouts.rollout_tokens import ONE_WINDOW, RolloutTokens, WindowStarts, windows_from

_LARGEST = float(np.finfo(np.float16).max)


class PackedTokens(Frozen):
    """All tokens of one rollout in a few bytes each, to display and not to train on: float16 keeps three digits.

    Ids are decimal with commas between, in which repeated tokens compress like repeated text; log-probabilities are
    float16 in base64; stages are runs of equal ones.
    """

    length: Annotated[int, Field(ge=0)]
    prompt_length: Annotated[int, Field(ge=0)]
    ids: Text
    logprobs: Text
    runs: tuple[tuple[int, int], ...]
    """Runs of equal stages: the stage and its number of consecutive tokens."""
    window_starts: WindowStarts = ONE_WINDOW

    def windows(self) -> tuple[slice, ...]:
        """The range of each window: a prompt, and what was drawn after it.

        Raises:
            FileFormatError: they are out of order, or end after the last token.
        """
        try:
            return windows_from(self.window_starts, self.length)
        except ValueError as cause:
            raise FileFormatError(f"the packed tokens of a rollout are damaged: {cause}.") from cause

    def stages(self) -> npt.NDArray[np.int8]:
        """The stage of each token: 0 to 3 where the policy wrote, -1 elsewhere.

        Raises:
            FileFormatError: they are not of the length that is named.
        """
        try:
            names, counts = [stage for stage, _ in self.runs], [count for _, count in self.runs]
            stages = np.repeat(np.array(names, dtype=np.int8), counts)
        except (ValueError, OverflowError) as cause:
            raise FileFormatError(f"the packed tokens of a rollout are damaged: {cause}.") from cause
        if len(stages) != self.length:
            raise FileFormatError(
                f"the packed tokens of a rollout name {self.length} tokens and have the stages of {len(stages)}."
            )
        return stages

    def unpack(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int8], npt.NDArray[np.float16]]:
        """Ids, stages (0 to 3 where the policy wrote, -1 elsewhere) and log-probabilities, one entry for each token.

        Raises:
            FileFormatError: they are not all of the length that is named.
        """
        try:
            ids = np.array([int(token) for token in self.ids.split(",") if self.ids], dtype=np.int32)
            logprobs = np.frombuffer(base64.b64decode(self.logprobs, validate=True), dtype="<f2")
        except (binascii.Error, ValueError, OverflowError) as cause:
            raise FileFormatError(f"the packed tokens of a rollout are damaged: {cause}.") from cause
        if {len(ids), len(logprobs)} != {self.length}:
            raise FileFormatError(
                f"the packed tokens of a rollout name {self.length} tokens and hold {len(ids)} and {len(logprobs)}."
            )
        return ids, self.stages(), logprobs.astype(np.float16)


def pack_tokens(tokens: RolloutTokens) -> PackedTokens:
    """The same tokens, packed."""
    logprobs = np.clip(np.array(tokens.logprobs, dtype=np.float64), -_LARGEST, _LARGEST)
    return PackedTokens(
        length=len(tokens.ids),
        prompt_length=tokens.prompt_length,
        ids=",".join(map(str, tokens.ids)),
        logprobs=base64.b64encode(logprobs.astype("<f2").tobytes()).decode("ascii"),
        runs=tuple((stage, len(list(run))) for stage, run in groupby(tokens.stage_ids)),
        window_starts=tokens.window_starts,
    )
