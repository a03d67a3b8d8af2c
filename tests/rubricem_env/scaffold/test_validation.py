"""Rules that need more than one emission, and the sentences that all of them come with."""

import re

import pytest

from rubricem_env.domain.trajectory import Observation, Origin, Segment, ToolStatus, Trajectory
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.violation import Code, violation

PLAN = (
    "<structured_plan><deep_analysis>d</deep_analysis><rubric>r</rubric>"
    "<research_plan>p</research_plan></structured_plan>"
)
CALL = '<call_tool name="a">q</call_tool>'
STATE = "<state_evaluation>s</state_evaluation>"
REVIEW = "<review><rubric_review>r</rubric_review><writing_plan>w</writing_plan></review>"
ANSWER = "<answer>a</answer>"
FIRST = f"<think>t</think>{PLAN}{CALL}"
SECOND = f"<think>t</think>{STATE}"


def tool(status: ToolStatus | None) -> Segment:
    return Segment(origin=Origin.TOOL, text="x", observation=Observation(status=status))


def violations(*turns: str, statuses: tuple[ToolStatus | None, ...] = (), question: str = "q") -> list[tuple[str, int]]:
    segments = []
    for place, turn in enumerate(turns):
        segments.append(Segment(origin=Origin.POLICY, text=turn))
        segments.append(tool(statuses[place] if place < len(statuses) else ToolStatus.OK))
    parsed = parse_trajectory(Trajectory(question=question, segments=tuple(segments)))
    return [(found.code.value, found.turn) for found in parsed.violations]


@pytest.mark.parametrize(
    ("turns", "found"),
    [
        ((FIRST, SECOND + CALL, SECOND + REVIEW + ANSWER), None),
        ((f"<think>t</think>{PLAN}", f"<think>t</think>{CALL}", SECOND + REVIEW + ANSWER), ("no_action", 1)),
        ((FIRST, SECOND + REVIEW, f"<think>t</think>{ANSWER}"), ("no_action", 2)),
        ((FIRST, SECOND + REVIEW + "<answer/>"), ("empty_answer", 2)),
        ((FIRST, SECOND + REVIEW + '<answer><cite id="S_1">c</cite></answer>'), ("unknown_citation", 2)),
        ((FIRST, SECOND + REVIEW + "<answer><cite>c</cite></answer>"), ("empty_citation", 2)),
        ((), ("missing_answer", 0)),
        ((f"{PLAN}{CALL}", SECOND + REVIEW + ANSWER), ("missing_think", 1)),
        ((f"so <think>t</think>{PLAN}{CALL}", SECOND + REVIEW + ANSWER), ("missing_think", 1)),
        ((f"<think>t</think>{CALL}", SECOND + REVIEW + ANSWER), ("missing_plan", 1)),
        ((FIRST.replace("<rubric>r</rubric>", ""), SECOND + REVIEW + ANSWER), ("missing_plan_section", 1)),
        ((FIRST, f"<think>t</think>{REVIEW}{ANSWER}"), ("missing_state_evaluation", 2)),
        ((FIRST, SECOND + ANSWER), ("missing_review", 2)),
        ((FIRST, SECOND + "<review><rubric_review/></review>" + ANSWER), ("missing_review_section", 2)),
        ((FIRST, SECOND + REVIEW + CALL, SECOND + REVIEW + ANSWER), ("stage_order", 2)),
        ((FIRST, f"<think>t</think>{REVIEW}{STATE}{ANSWER}"), ("stage_order", 2)),
    ],
)
def test_each_departure_from_the_order_of_stages_breaks_one_rule(turns, found):
    assert violations(*turns) == ([found] if found else [])


def test_two_tool_errors_in_a_row_are_one_too_many_and_a_notice_between_does_not_part_them():
    errors = (ToolStatus.ERROR, None, ToolStatus.TIMEOUT, ToolStatus.BLOCKED)
    found = violations(FIRST, SECOND + CALL, SECOND + CALL, SECOND + CALL, SECOND + REVIEW + ANSWER, statuses=errors)
    assert found == [("consecutive_tool_errors", 4)]
    recovered = (ToolStatus.ERROR, ToolStatus.EMPTY, ToolStatus.ERROR)
    turns = (FIRST, SECOND + CALL, SECOND + CALL, SECOND + REVIEW + ANSWER)
    assert violations(*turns, statuses=recovered, question=" ") == [("empty_question", 0)]


def test_an_answer_in_the_first_turn_breaks_two_rules():
    expected = [("answer_in_first_turn", 1), ("missing_review", 1)]
    assert violations(f"<think>t</think>{PLAN}{ANSWER}") == expected


@pytest.mark.parametrize("code", Code)
def test_every_code_has_a_sentence_that_names_the_place_and_the_way_out(code):
    message = violation(code, 3, "<x>").message
    assert re.search(r"\bturn 3\b|^the trajectory", message)
    assert re.search(r"\. [A-Z][^.]*", message), "the way out is a sentence of its own"


def test_a_long_value_is_shortened_and_an_unprintable_one_spelt_out():
    message = violation(Code.TEXT_AFTER_ACTION, 1, "\u202e" + "x" * 100).message
    assert "U+202E" in message
    assert len(message) < 200
    assert message.isprintable()


@pytest.mark.parametrize(("length", "shown"), [(60, "x" * 60), (61, "x" * 57 + "...")])
def test_a_long_value_is_shortened_in_the_sentence(length, shown):
    assert f"turn 1 has {shown} inside" in violation(Code.NESTED_TAG, 1, "x" * length).message


@pytest.mark.parametrize(
    ("after", "found"),
    [("</answer>", False), ("<review></review>", False), ("<answer>b", False), ("<answer>b</answer>", True)],
)
def test_a_second_action_is_one_that_opens_and_closes_after_the_first(after, found):
    turn = parse_turn(f"<think>t</think>{ANSWER}{after}")
    assert (Code.TWO_ACTIONS in {noted.code for noted in turn.violations}) == found
