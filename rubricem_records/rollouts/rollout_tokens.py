"""The tokens of a rollout: the id, the log-probability and the stage of each."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import UsageError

NO_STAGE = -1
"""The stage id of prompt, tool and padding tokens: no stage, and not trained on."""

ONE_WINDOW = (0,)
"""Where the windows of a conversation begin of which nothing was folded away."""
WindowStarts = Annotated[tuple[int, ...], Field(exclude_if=lambda starts: starts == ONE_WINDOW)]
"""The position at which each window begins; left out of a file where there is one."""


def windows_from(starts: Sequence[int], length: int) -> tuple[slice, ...]:
    """The range of each window among so many tokens.

    Raises:
        ValueError: the first does not begin at 0, or another not after the one before.
    """
    ends = (*starts[1:], length + 1)
    if tuple(starts[:1]) != ONE_WINDOW or any(end <= start for start, end in zip(starts, ends, strict=True)):
        raise ValueError(f"window_starts is {tuple(starts)}; windows begin at 0 and each after the one before")
    return tuple(map(slice, starts, (*starts[1:], length)))


class RolloutTokens(Frozen):
    """One entry for each token of the conversation, from the prompt to the end.

    A conversation whose older part was folded away has several windows, one after the other. A window is a context of
    its own: a prompt, and what was drawn after it.
    """

    ids: tuple[int, ...]
    stage_ids: tuple[int, ...]
    """0 to 3 where the policy wrote, -1 elsewhere."""
    logprobs: tuple[float, ...]
    """As drawn, under the temperature of the sampling; 0 where the policy did not write."""
    prompt_length: int
    """Of the first window."""
    window_starts: WindowStarts = ONE_WINDOW

    @model_validator(mode="after")
    def _has_one_entry_each(self) -> "RolloutTokens":
        sizes = {len(self.ids), len(self.stage_ids), len(self.logprobs)}
        if len(sizes) != 1:
            raise ValueError(f"ids, stage_ids and logprobs have {sorted(sizes)} entries; they need one for each token")
        windows_from(self.window_starts, len(self.ids))
        return self

    @property
    def windows(self) -> tuple[slice, ...]:
        """The range of each window."""
        return windows_from(self.window_starts, len(self.ids))

    @property
    def written_windows(self) -> tuple[slice, ...]:
        """The windows in which the policy wrote, which are trained on; the first where it wrote nowhere."""
        written = self.policy_mask
        return tuple(window for window in self.windows if written[window].any()) or self.windows[:1]

    def after_opening(self, window: slice) -> slice:
        """What a window has after the opening, with which every window begins.

        Raises:
            UsageError: this one does not.
        """
        opening = self.ids[: self.prompt_length]
        if self.ids[window][: self.prompt_length] != opening:
            raise UsageError(
                "a window of a folded rollout does not begin with the rollout's opening, so no other can stand in its "
                "place; set references.distill_context to false, or play without `context`."
            )
        return slice(window.start + self.prompt_length, window.stop)

    @property
    def policy_mask(self) -> npt.NDArray[np.bool_]:
        """(tokens,): what the policy wrote, the only tokens that are trained on."""
        stages: npt.NDArray[np.int8] = np.array(self.stage_ids, dtype=np.int8)
        return np.not_equal(stages, NO_STAGE)
