"""The domain's values: what they refuse, and what makes two of them equal."""

import hashlib
import math

import pytest
from pydantic import ValidationError

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement, Rubric, RubricScore, StageScore, Unscored
from rubricem_env.domain.reflection import Reflection, ReflectionScore
from rubricem_env.domain.trajectory import Query, ToolCall, query_key


def test_a_questions_key_is_the_sha256_of_its_stripped_nfc_form():
    assert query_key(" e\u0301? \n") == hashlib.sha256("\u00e9?".encode()).hexdigest()
    assert Query(question="e\u0301?").key == query_key("\u00e9?")


@pytest.mark.parametrize("question", ["", "  \n\t"])
def test_a_query_without_a_question_is_refused(question):
    with pytest.raises(ValidationError, match="at least one visible character"):
        Query(question=question)


def test_a_lone_surrogate_becomes_the_replacement_character_so_that_text_can_be_saved():
    assert Query(question="a\ud800b?").question == "a\ufffdb?"


@pytest.mark.parametrize("score", [True, 1.0, "2", -1, 3, math.nan])
def test_a_score_is_a_whole_number_from_0_to_2_and_nothing_like_it(score):
    with pytest.raises(ValidationError):
        RubricScore(rubric_id="r", score=1.0, scores=(score,))


@pytest.mark.parametrize("score", [math.nan, math.inf, -0.01, 1.01, "0.5"])
def test_a_stage_score_is_finite_and_between_0_and_1(score):
    with pytest.raises(ValidationError):
        StageScore(score=score)


def test_a_value_cannot_be_changed_and_takes_no_unknown_field():
    with pytest.raises(ValidationError, match="frozen"):
        StageScore(score=0.5).score = 1.0
    with pytest.raises(ValidationError, match="Extra inputs"):
        StageScore(score=0.5, weight=2)


def test_a_stage_without_an_outcome_was_not_asked_for_and_is_not_zero():
    judgement = Judgement.of({Stage.PLAN: StageScore(score=0.0)})
    assert judgement.score(Stage.PLAN) == 0.0
    assert judgement.score(Stage.ANSWER) is None
    assert judgement.outcome(Stage.ANSWER) == Unscored(reason="not_asked")
    assert judgement.scores == (0.0, None, None, None)


def test_a_rubrics_id_ignores_case_spacing_and_unicode_form_but_not_stage_or_polarity():
    first = Rubric(stage=Stage.PLAN, title="a", description="Names  the Caf\u00e9")
    same = Rubric(stage=Stage.PLAN, title="b", description="names the cafe\u0301 ", weight=3.0)
    assert first.id == same.id
    others = [
        Rubric(stage=Stage.ANSWER, title="a", description=first.description),
        Rubric(stage=Stage.PLAN, title="a", description=first.description, polarity="negative"),
    ]
    assert len({first.id, *(other.id for other in others)}) == 3


@pytest.mark.parametrize("weight", [0.0, -1.0, math.nan, math.inf])
def test_a_rubric_weighs_something(weight):
    with pytest.raises(ValidationError):
        Rubric(stage=Stage.PLAN, title="t", description="d", weight=weight)


def test_a_reflections_utility_is_the_mean_of_its_two_uses():
    score = ReflectionScore(diagnosis=1.0, specificity=0.5, scope=0.0)
    # within 0.4 * 1 + 0.6 * 0.5 = 0.7; cross 0.4 * 1 + 0.6 * 0 = 0.4; mean 0.55
    assert (score.within, score.cross) == (0.7, 0.4)
    assert score.utility == pytest.approx(0.55)


@pytest.mark.parametrize(("rubrics", "takeaways"), [(" ", "t"), ("r", ""), ("", "")])
def test_a_reflection_that_says_nothing_in_one_part_is_refused(rubrics, takeaways):
    with pytest.raises(ValidationError, match="needs rubrics and takeaways"):
        Reflection(query_key="k", question="q", rubrics=rubrics, takeaways=takeaways)


def test_two_calls_ask_the_same_whatever_the_case_and_spacing_of_the_query():
    first = ToolCall(name="google_search", query="Tall  Fox", written_name="Google")
    assert first.identity == ToolCall(name="google_search", query="tall fox ").identity
    assert first.identity != ToolCall(name="google_search", query="tall fox", parameters=(("limit", "3"),)).identity


def test_a_mean_score_rounds_halves_up_and_its_spread_is_that_of_the_members():
    assert [RubricScore(rubric_id="r", score=score).rounded for score in (0.49, 0.5, 1.5)] == [0, 1, 2]
    assert [RubricScore(rubric_id="r", score=1.0, scores=scores).spread for scores in ((), (0, 2, 1))] == [0, 2]


def test_a_judgement_has_the_stages_that_it_was_made_for():
    assert [stage.position for stage in STAGES] == [0, 1, 2, 3]
    judgement = Judgement.of({"b": StageScore(score=1.0)}, ("a", "b"))
    assert (judgement.stages, judgement.last, judgement.scores) == (("a", "b"), "b", (None, 1.0))
    assert judgement.replaced({"a": StageScore(score=0.5)}).scores == (0.5, 1.0)
    assert hash(judgement) == hash(Judgement.model_validate_json(judgement.model_dump_json()))
    assert judgement.model_dump(mode="json").keys() == {"a", "b"}


def test_an_outcome_of_no_stage_and_a_judgement_of_none_or_too_many_are_refused():
    with pytest.raises(UsageError, match="an outcome is of the stage 'final'; the stages are plan, research, review"):
        Judgement.of({"final": StageScore(score=1.0)})
    for count in (0, 9):
        with pytest.raises(ValidationError, match=f"at most 8; it has {count}"):
            Judgement({f"s{number}": Unscored(reason="not_asked") for number in range(count)})
