"""Where stages begin and end; the golden trajectories hold the whole runs, these the corners."""

from rubricem_env.domain.base import Span, Stage
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.reading import find_boundaries

THINK = "<think>a</think>"  # 16 characters
PLAN = "<structured_plan>p</structured_plan>"  # 36
CALL = '<call_tool name="a">q</call_tool>'  # 33
REVIEW = "<review>r</review>"  # 18
ANSWER = "<answer>a</answer>"  # 18


def spans(*texts: str, **options) -> dict:
    return find_boundaries([parse_turn(text, number) for number, text in enumerate(texts, 1)], **options)


def test_nothing_has_no_stage():
    assert spans() == {}
    assert spans("") == {}


def test_the_review_may_be_told_to_begin_at_its_tag():
    text = THINK + REVIEW + ANSWER
    assert spans(PLAN + CALL, text)[Stage.REVIEW] == Span(69, 103)
    assert spans(PLAN + CALL, text, review_start="review_tag")[Stage.REVIEW] == Span(85, 103)


def test_a_thought_before_the_last_call_is_not_the_reviews():
    assert spans(PLAN + THINK + CALL, REVIEW + ANSWER)[Stage.REVIEW] == Span(85, 103)


def test_a_thought_before_the_plan_is_the_plans():
    assert spans(THINK + PLAN + REVIEW + ANSWER) == {
        Stage.PLAN: Span(0, 52),
        Stage.REVIEW: Span(52, 70),
        Stage.ANSWER: Span(70, 88),
    }


def test_an_earlier_review_is_research_though_no_thought_parts_the_two():
    # call 33; then the thought and the first review, 16 + 18, are Research up to 67
    found = spans(CALL, THINK + REVIEW + REVIEW + ANSWER)
    assert (found[Stage.RESEARCH], found[Stage.REVIEW]) == (Span(0, 67), Span(67, 85))


def test_a_review_without_an_answer_reaches_to_the_end():
    assert spans(CALL, THINK + REVIEW + " so")[Stage.REVIEW] == Span(33, 70)


def test_turns_between_review_and_answer_are_answer():
    assert spans(CALL, REVIEW, "hm", ANSWER)[Stage.ANSWER] == Span(51, 71)


def test_a_review_after_the_answer_is_answer():
    assert spans(CALL, ANSWER + REVIEW)[Stage.ANSWER] == Span(33, 69)
    assert spans(CALL, ANSWER, REVIEW)[Stage.ANSWER] == Span(33, 69)


def test_the_thought_of_an_idle_turn_before_the_review_begins_it():
    assert spans(CALL, THINK, REVIEW + ANSWER)[Stage.REVIEW] == Span(33, 67)


def test_a_review_inside_the_first_plan_is_plan():
    assert spans(f"<structured_plan>{REVIEW}</structured_plan>{ANSWER}")[Stage.REVIEW] == Span(17, 35)


def test_an_unclosed_plan_ends_at_the_call():
    # "<structured_plan>p" is 18 characters
    assert spans("<structured_plan>p" + CALL)[Stage.PLAN] == Span(0, 18)
