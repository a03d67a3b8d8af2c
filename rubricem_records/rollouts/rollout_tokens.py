"""The tokens of a rollout: the id, the log-probability and the stage of each."""

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from rubricem_env.domain.base import Frozen

NO_STAGE = -1
"""The stage id of prompt, tool and padding tokens: no stage, and not trained on."""


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
    window_starts: tuple[int, ...] = (0,)
    """The position at which each window begins."""

    @model_validator(mode="after")
    def _has_one_entry_each(self) -> "RolloutTokens":
        sizes = {len(self.ids), len(self.stage_ids), len(self.logprobs)}
        if len(sizes) != 1:
            raise ValueError(f"ids, stage_ids and logprobs have {sorted(sizes)} entries; they need one for each token")
        ends = (*self.window_starts[1:], len(self.ids) + 1)
        if self.window_starts[:1] != (0,) or any(
            end <= start for start, end in zip(self.window_starts, ends, strict=True)
        ):
            raise ValueError(f"window_starts is {self.window_starts}; windows begin at 0 and each after the one before")
        return self

    @property
    def windows(self) -> tuple[slice, ...]:
        """The range of each window."""
        return tuple(map(slice, self.window_starts, (*self.window_starts[1:], len(self.ids))))

    @property
    def policy_mask(self) -> npt.NDArray[np.bool_]:
        """(tokens,): what the policy wrote, the only tokens that are trained on."""
        stages: npt.NDArray[np.int8] = np.array(self.stage_ids, dtype=np.int8)
        return np.not_equal(stages, NO_STAGE)
