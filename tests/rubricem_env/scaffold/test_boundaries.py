"""Where stages begin and end; the golden trajectories hold whole runs, these the corners."""

import pytest

from rubricem_env.scaffold.boundaries import find_boundaries
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.parser import parse_turn

THINK = "<think>a</think>"  # 16 characters
PLAN = "<structured_plan>p</structured_plan>"  # 36
CALL = '<call_tool name="a">q</call_tool>'  # 33
REVIEW = "<review>r</review>"  # 18
ANSWER = "<answer>a</answer>"  # 18


def spans(*texts: str, **options) -> dict:
    found = find_boundaries([parse_turn(text, number) for number, text in enumerate(texts, 1)], **options)
    return {str(stage): tuple(span) for stage, span in found.items()}


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        pytest.param((), {}, id="nothing has no stage"),
        pytest.param(("",), {}, id="an empty turn has no stage"),
        pytest.param(
            (PLAN + THINK + CALL, REVIEW + ANSWER),
            {"review": (85, 103)},
            id="a thought before the last call belongs to research",
        ),
        pytest.param(
            (THINK + PLAN + REVIEW + ANSWER,),
            {"plan": (0, 52), "review": (52, 70), "answer": (70, 88)},
            id="a thought before the plan belongs to the plan",
        ),
        pytest.param(
            (CALL, THINK + REVIEW + REVIEW + ANSWER),
            {"research": (0, 67), "review": (67, 85)},  # 33 + 16 + 18 = 67
            id="an earlier review is research",
        ),
        pytest.param(
            (CALL, THINK + REVIEW + " so"), {"review": (33, 70)}, id="a review without an answer ends the text"
        ),
        pytest.param((CALL, REVIEW, "hm", ANSWER), {"answer": (51, 71)}, id="turns after the review are answer"),
        pytest.param((CALL, ANSWER + REVIEW), {"answer": (33, 69)}, id="a review after the answer is answer"),
        pytest.param((CALL, ANSWER, REVIEW), {"answer": (33, 69)}, id="a review in a turn after the answer is answer"),
        pytest.param((REVIEW + ANSWER,), {"review": (0, 18)}, id="a review with nothing before it begins itself"),
        pytest.param((CALL, THINK, REVIEW + ANSWER), {"review": (33, 67)}, id="the thought of an idle turn begins it"),
        pytest.param(
            (f"<structured_plan>{REVIEW}</structured_plan>{ANSWER}",),
            {"review": (17, 35)},
            id="a review ends the plan around it",
        ),
        # "<structured_plan>p" is 18 characters
        pytest.param(("<structured_plan>p" + CALL,), {"plan": (0, 18)}, id="an unclosed plan ends at the call"),
    ],
)
def test_stages_begin_and_end_where_the_paper_and_our_choices_put_them(texts, found):
    actual = spans(*texts)
    assert {stage: actual.get(stage) for stage in found} == found
    assert bool(actual) == bool(found)


def test_the_review_may_begin_at_its_tag_instead_of_its_thought():
    texts = (PLAN + CALL, THINK + REVIEW + ANSWER)
    stages = [form.model_copy(update={"from_thought": False}) for form in DEFAULT.stages]
    scaffold = DEFAULT.model_copy(update={"name": "at_the_tag", "stages": tuple(stages)})
    assert spans(*texts)["review"] == (69, 103)
    assert spans(*texts, scaffold=scaffold)["review"] == (85, 103)
