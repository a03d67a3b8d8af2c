"""The golden group: four attempts at one question, their stage scores, and the advantages that follow from them."""

import json
from pathlib import Path

import numpy as np
import pytest

from docs.adapters.tutor import ATTEMPTS, Tutor, tutored_query, tutored_questions
from rubricem_agent.learn.credit import assign_credit
from rubricem_env.adapters.session import offline_scorer
from rubricem_env.domain.base import STAGES
from rubricem_env.judge.masking import group_scores

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text(encoding="utf-8"))
SIZE = len(ATTEMPTS)


def group_scorer():
    return offline_scorer([tutored_query()])


def tutor(place):
    return Tutor(tutored_questions()[tutored_query().question], place)


def stage_scores(judgement):
    return [judgement.score(stage) for stage in STAGES]


def assert_golden_scores(rows):
    """Rows of four numbers, in the order of the attempts."""
    assert np.array(rows) == pytest.approx(np.array(GOLDEN["scores"]))


def assert_golden_judgements(judgements):
    assert_golden_scores([stage_scores(judgement) for judgement in judgements])
    scores, valid, scored = group_scores(judgements)
    assert assign_credit(scores, valid=valid, scored=scored).advantages == pytest.approx(np.array(GOLDEN["advantages"]))
