"""The tokens of a rollout: the id, the log-probability and the stage of each."""

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from rubricem_env.domain.base import Frozen

NO_STAGE = -1
"""The stage id of prompt, tool and padding tokens: no stage, and not trained on."""


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
