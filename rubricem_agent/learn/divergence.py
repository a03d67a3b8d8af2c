"""How far the policy is from its reference, token by token: the estimator that losses and logs share.

With ref and new the log-probabilities of a token under the reference and the policy:

    KL3 = exp(ref - new) - (ref - new) - 1

It is never negative, and unbiased for samples of the policy. The loss bounds it as veRL's does, and so does every log:
a run is stopped by the number that it is trained with.
"""

import numpy as np
import numpy.typing as npt

LOG_RATIO_LIMIT = 20.0
"""Log ratios are clamped to it, as veRL clamps them: e^20 squared still fits float32."""
KL_LIMIT = 10.0
"""The most that one token counts, as in veRL's loss."""


def reference_kl(new_logprobs: npt.ArrayLike, reference_logprobs: npt.ArrayLike) -> npt.NDArray[np.floating]:
    """KL3 of each token, at most `KL_LIMIT`; arrays of any one shape."""
    gap = np.clip(np.asarray(reference_logprobs) - np.asarray(new_logprobs), -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    kl: npt.NDArray[np.floating] = np.minimum(np.exp(gap) - gap - 1, KL_LIMIT)
    return kl
