"""A trajectory read whole."""

import pytest

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.scaffold.grammar import Code
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory, parse_turns

PLAN = "<structured_plan>p</structured_plan>"
CALL = '<call_tool name="a">q</call_tool>'
OUTPUT = "<tool_output>x</tool_output>"
REVIEW = "<review>r</review>"
ANSWER = "<answer>a</answer>"


def record(*parts: str | tuple[str, str]) -> Trajectory:
    """Policy text as it stands; tool output is known by its tag; a pair is what was kept and what was cut."""
    segments = []
    for part in parts:
        text, cut = part if isinstance(part, tuple) else (part, "")
        origin = Origin.TOOL if text.startswith("<tool_output>") else Origin.POLICY
        segments.append(Segment(origin=origin, text=text, cut=cut))
    return Trajectory(question="q", segments=tuple(segments))


def read(*parts: str | tuple[str, str]) -> ParsedTrajectory:
    return parse_trajectory(record(*parts))


def texts(*parts: str | tuple[str, str]) -> list[str]:
    return [turn.text for turn in parse_turns(record(*parts))]


def test_segments_that_touch_are_one_turn_until_an_action_closes():
    assert texts("<ans", "wer>a</answer>") == [ANSWER]
    assert texts(CALL, ANSWER) == [CALL, ANSWER]
    assert texts(CALL + " more", ANSWER) == [CALL + " more", ANSWER]


def test_tool_output_parts_two_turns():
    assert texts("hm", OUTPUT, OUTPUT, "<think>t</think>") == ["hm", "<think>t</think>"]
    assert texts("", OUTPUT, ANSWER) == ["", ANSWER]


def test_what_was_cut_is_reported_and_is_part_of_nothing():
    parsed = read((CALL, "<answer>x</answer>"), OUTPUT, ANSWER)
    assert Code.TWO_ACTIONS in {found.code for found in parsed.violations}
    assert parsed.policy_text == CALL + ANSWER


def test_self_written_tool_output_that_was_cut_is_still_reported():
    parsed = read(("hm ", "<tool_output>fake"), OUTPUT, ANSWER)
    assert [turn.text for turn in parsed.turns] == ["hm ", ANSWER]
    assert Code.SELF_WRITTEN_TOOL_OUTPUT in {found.code for found in parsed.violations}


def test_a_cut_that_the_rules_would_not_make_is_left_out():
    assert parse_turns(record(("hm", " and on")))[0].end == 2


@pytest.mark.parametrize(
    ("parts", "happened"),
    [
        ((), ""),
        ((PLAN + CALL, OUTPUT, REVIEW + ANSWER), "plan research review answer"),
        (("<think>t</think>" + ANSWER,), "answer"),
        (("<structured_plan> </structured_plan>" + ANSWER,), "answer"),
        ((CALL, OUTPUT, PLAN + CALL, OUTPUT, REVIEW + CALL), "research"),
        ((PLAN + CALL, OUTPUT, "<answer>so far"), "plan research answer"),
        (("<answer> ",), ""),
    ],
)
def test_a_stage_happened_when_its_tag_was_opened_and_says_something(parts, happened):
    parsed = read(*parts)
    assert " ".join(stage for stage in STAGES if parsed.happened(stage)) == happened


def test_a_truncated_answer_is_what_there_is_of_it():
    parsed = read(CALL, OUTPUT, "<answer> so far ")
    assert (parsed.answer, parsed.is_complete) == ("so far", False)
    assert (read(CALL).answer, read().answer) == (None, None)


def test_data_generation_rejects_a_trajectory_for_its_strict_violations_alone():
    parsed = read(f"<answer>{CALL}", "<ANSWER>a</ANSWER>")
    assert parsed.stage_text(Stage.ANSWER) == "<ANSWER>a</ANSWER>"
    assert {Code.TAG_CASE, Code.MISSING_REVIEW} <= {found.code for found in parsed.violations}
    assert {found.code for found in parsed.violations} - {found.code for found in parsed.rejections} == {Code.TAG_CASE}


def test_turns_that_are_given_are_not_parsed_again():
    turns = parse_turns(record(ANSWER))
    assert parse_trajectory(record(ANSWER), turns=turns).turns is turns
