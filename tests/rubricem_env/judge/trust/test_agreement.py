"""The statistics of agreement."""

from rubricem_env.judge.trust.agreement import Agreement, measure_agreement


def test_agreement_by_hand():
    pairs = [(2, 2), (1, 0), (0, 0), (2, 0)]
    # exact 2/4; within one 3/4; squared distances 0+1+0+4 = 5, observed 5/4.
    # by chance: firsts {2:2, 1:1, 0:1}, seconds {2:1, 0:3}; sum n_a n_b d^2 =
    # 2x1x0 + 2x3x4 + 1x1x1 + 1x3x1 + 1x1x4 + 1x3x0 = 32, /16 = 2. kappa = 1 - 1.25/2 = 0.375. bias 3/4.
    assert measure_agreement(pairs) == Agreement(4, 0.5, 0.75, 0.375, 0.75)
    assert measure_agreement([]).exact is None
    assert measure_agreement([(1, 0), (1, 2)]).kappa is None
