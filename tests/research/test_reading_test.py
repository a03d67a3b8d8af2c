"""The reading test: what counts as copied, as sourced, and in which band."""

import json
from pathlib import Path

import pytest

from research.reading_test import Statement, by_band, main, statements
from rubricem_env.domain.trajectory import AnswerFormat, Origin, Segment, Trajectory
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory

PAGES = """<tool_output>
<snippet id="S_1">Amber Crow sheet | https://almanac.example/d001
Amber Crow has length 30 km. Amber Crow has mouth Calm Bear.</snippet>
<snippet id="S_2">Table of rivers | https://almanac.example/d002
The length of rivers. Amber Dove has length 40 km. Keen Moon has length 50 km.</snippet>
</tool_output>"""


def read(answer: str) -> ParsedTrajectory:
    segments = (
        Segment(origin=Origin.POLICY, text='<call_tool name="google_search">Amber Crow</call_tool>'),
        Segment(origin=Origin.TOOL, text=PAGES),
        Segment(origin=Origin.POLICY, text=answer),
    )
    return parse_trajectory(
        Trajectory(question="How long is Amber Crow?", answer_format=AnswerFormat.SHORT, segments=segments)
    )


def test_a_value_of_the_context_is_copied_and_its_source_is_the_snippet_that_holds_it() -> None:
    reply = (
        "<state_evaluation>S_1: Amber Crow has length 30 km. S_2: Amber Crow has length 30 km.</state_evaluation>"
        '<answer><cite id="S_2">Amber Dove has length 40 km.</cite> Amber Crow has mouth Calm Bear. (S_1)</answer>'
    )
    said = list(statements(read(reply)))

    assert [each.is_copied for each in said] == [True, True, True, True]
    assert [each.is_sourced for each in said] == [True, False, True, True]


def test_a_value_of_a_look_alike_is_not_copied_and_a_fact_that_no_page_states_does_not_count() -> None:
    said = list(statements(read("<answer>Amber Crow has length 40 km. Amber Crow has depth 3 m.</answer>")))

    # Two other rivers have a length: 40 and 50 km. Two snippets are shown.
    assert [(each.is_copied, each.is_sourced, each.rivals, each.snippets) for each in said] == [(False, None, 2, 2)]


def test_an_old_value_is_read_off_the_page_that_states_it_for_its_edition() -> None:
    said = list(statements(read("<answer>Amber Crow has old length 30 km.</answer>")))

    assert [each.is_copied for each in said] == [True]


def test_bands_count_each_statement_once_in_each_of_three_views() -> None:
    said = [Statement(True, True, 3, 0, 1000), Statement(False, None, 4, 7, 9000)]
    bands = by_band(said)

    assert bands["all"] == {"statements": 2, "copied": 0.5, "sourced": 1.0}
    assert bands["snippets 0 to 3"]["copied"] == 1.0
    assert bands["snippets 4 to 6"]["copied"] == 0.0
    assert bands["rivals over 6"]["statements"] == 1
    assert bands["length over 3500"]["statements"] == 1


def test_the_command_tests_the_shipped_policy_and_refuses_a_folder_without_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err

    assert main(["tiny", "--seed", "5", "--questions", "4", "--json", str(tmp_path / "read.json")]) == 0
    greedy, warm = json.loads((tmp_path / "read.json").read_text())
    assert (greedy["temperature"], warm["temperature"]) == (0.0, 1.0)
    assert (greedy["attempts"], warm["attempts"]) == (4, 4)
