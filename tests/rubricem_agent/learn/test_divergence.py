"""The KL that logs report is the one that the losses train with."""

import numpy as np
import pytest

from rubricem_agent.learn.divergence import KL_LIMIT, reference_kl


def test_kl3_is_zero_for_equal_probabilities_and_positive_in_both_directions():
    kl = reference_kl(np.log([0.5, 0.2, 0.8]), np.log([0.5, 0.4, 0.4]))
    # 2 - ln 2 - 1 and 0.5 + ln 2 - 1
    assert kl.tolist() == pytest.approx([0.0, 0.306853, 0.193147], abs=1e-6)


def test_one_token_counts_no_more_than_the_limit():
    assert reference_kl([-30.0], [-0.1]).tolist() == [KL_LIMIT]
