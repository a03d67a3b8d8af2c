"""A judge compared with labels."""

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.judge.trust.calibration import LabelledExample, calibrate
from rubricem_env.testing.judges import attempt, careless
from tests.fakes import rubric
from tests.rubricem_env.judge.trusted_judges import CRITERION, constant


async def test_calibration_compares_scores_with_labels():
    stage = rubric("p", Stage.REVIEW)
    examples = [
        LabelledExample(trajectory=attempt(), rubric=CRITERION, label=2),
        LabelledExample(trajectory=careless(), rubric=CRITERION, label=0),
        LabelledExample(trajectory=careless(), rubric=stage, label=0),
    ]
    found = await calibrate(constant(2), examples)
    # scores 2, 2, and 0 for the review that never happened; labels 2, 0, 0
    assert (found.overall.pairs, found.overall.exact) == (3, pytest.approx(2 / 3))
    assert [rubric_score.rounded for rubric_score in found.rubric_scores] == [2, 2, 0]
    assert (await calibrate(constant(None), examples)).rubric_scores.count(None) == 2
