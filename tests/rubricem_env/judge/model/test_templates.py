"""The judge's system prompts have the scale and the counts of rubrics from their constants."""

import pytest

from rubricem_env.domain.scale import FULL_SCORE, list_scores
from rubricem_env.judge.model.proposed_rubrics import RUBRICS_PER_ANSWER, RUBRICS_PER_STAGE, WEIGHTS
from rubricem_env.judge.model.templates import PROPOSE, SCORE, SYSTEM_PROMPTS, repair_request


@pytest.mark.parametrize("purpose", SYSTEM_PROMPTS)
def test_no_variable_of_a_template_is_left_unfilled(purpose):
    assert "$" not in SYSTEM_PROMPTS[purpose]


def test_the_scoring_prompt_states_the_scale():
    assert list_scores() == "0, 1 or 2"
    assert f"- {FULL_SCORE}: the quality is fully there\n- 1: partly there\n- 0: absent" in SYSTEM_PROMPTS[SCORE]
    assert SYSTEM_PROMPTS[SCORE].rstrip().endswith(f"the score as a whole number {list_scores()}.")


def test_the_proposing_prompt_states_the_counts_and_the_weights():
    assert f"Aim at {RUBRICS_PER_STAGE} criteria" in SYSTEM_PROMPTS[PROPOSE]
    assert f"and {RUBRICS_PER_ANSWER} for the answer" in SYSTEM_PROMPTS[PROPOSE]
    assert SYSTEM_PROMPTS[PROPOSE].count("(1 minor, 2 important, 3 critical)") == 1
    assert list(WEIGHTS) == [1, 2, 3]


def test_a_repair_names_the_missing_indices():
    assert "Missing or unusable: 2, 5." in repair_request([2, 5])
