"""Which rubrics are left out of a step."""

from rubricem_env.concurrency import open_generator
from rubricem_env.domain.base import Stage
from rubricem_env.judge.rubrics.dropout import drop_rubrics
from tests.fakes import rubric
from tests.rubricem_env.judge.trusted_judges import CRITERION


def test_dropout_keeps_persistent_rubrics_and_one_of_each_stage():
    rubrics = [CRITERION, *(rubric(str(n), Stage.PLAN) for n in range(6))]
    kept = drop_rubrics(rubrics, 1.0, rng=open_generator(0, "x"))
    assert CRITERION in kept
    assert len(kept) == 2
    assert (
        drop_rubrics(rubrics[::-1], 0.5, rng=open_generator(3, "x"))
        == drop_rubrics(rubrics, 0.5, rng=open_generator(3, "x"))[::-1]
    )
    assert drop_rubrics(rubrics, 0.0, rng=open_generator(0, "x")) == tuple(rubrics)
