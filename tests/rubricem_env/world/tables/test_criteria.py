"""True quality of three stages from texts by the name of a stage; what a policy claims counts for nothing."""

import pytest

from rubricem_env.world.tables.criteria import AnalysisEvidence, analysis_criteria, analysis_quality, states_number
from rubricem_env.world.tables.table_world import TableWorld

QUESTION = next(question for question in TableWorld.from_seed(0).questions if question.kind == "flow")
FRAME = "<frame><tables>readings, stations</tables><filters>{}, {}, {}</filters><unit>m3/s</unit></frame>".format(
    *QUESTION.filters
)
CITED = f'<report>It is <cite id="S_1">{QUESTION.value} m3/s</cite>.</report>'


def observation(tables, value, name="S_1"):
    return f'<tool_output>\n<snippet id="{name}">run_sql on {tables}\n1 row.\nflow\n{value}</snippet>\n</tool_output>'


RIGHT = observation("readings, stations", QUESTION.value)


def quality(frame=FRAME, analyse="<call_tool>...", report=CITED, *, observations=(RIGHT,), calls=("a",)):
    stages = {"frame": frame, "analyse": analyse, "report": report}
    seen = AnalysisEvidence.of(
        {stage: text for stage, text in stages.items() if text}, observations=observations, calls=calls
    )
    return tuple(round(share, 3) for share in analysis_quality(QUESTION, seen).values())


def test_a_perfect_attempt_and_none():
    assert quality() == (1.0, 1.0, 1.0)
    assert quality("", "", "", observations=(), calls=()) == (0.0, 0.0, 0.0)


def test_a_frame_is_scored_by_its_tables_filters_and_unit():
    # Two tables, three filters, a unit, no outdated table: seven criteria.
    assert quality("<frame>readings and stations</frame>")[0] == round(3 / 7, 3)
    assert quality(FRAME + " readings_merged")[0] == round(6 / 7, 3)
    assert quality(FRAME + " not readings_merged, and never the table stations_2019")[0] == 1.0


def test_a_number_that_no_table_was_read_for_is_not_found():
    # Of four criteria the tables and the number are lost; nothing is wrong or repeated.
    assert quality(observations=(observation("no table", QUESTION.value),))[1] == 0.5
    # One of the two tables: half of each.
    assert quality(observations=(observation("readings", QUESTION.value),))[1] == 0.75


def test_the_last_result_decides_whether_a_mistake_stands():
    wrong = observation("readings, stations", QUESTION.mistakes[0].value)

    # The number is not found and the last number is wrong: two of four are lost.
    assert quality(observations=(wrong,))[1] == 0.5
    assert quality(observations=(wrong, RIGHT.replace("S_1", "S_2")), calls=("a", "b"))[1] == 1.0
    assert quality(observations=(RIGHT, RIGHT.replace("S_1", "S_2")), calls=("a", "a"))[1] == round(3.5 / 4, 3)


def test_a_result_that_the_policy_writes_itself_is_none():
    assert quality(analyse=RIGHT, observations=())[1] == 0.5


def test_a_report_states_the_number_its_unit_and_the_result_it_stands_in():
    value = QUESTION.value
    # Three criteria: the number with its unit, the citation, no wrong number.
    assert quality(report=f'<report><cite id="S_1">{value}</cite></report>')[2] == round(2.5 / 3, 3)
    assert quality(report=f"<report>{value} m3/s</report>")[2] == round(2 / 3, 3)
    assert quality(report=f'<report>{value} m3/s <cite id="S_1">as found</cite></report>')[2] == round(2.5 / 3, 3)
    assert quality(report=f'<report><cite id="S_9">{value} m3/s</cite></report>')[2] == round(2 / 3, 3)
    wrong = QUESTION.mistakes[0].value
    assert quality(report=f'<report><cite id="S_1">{wrong} m3/s</cite></report>')[2] == round(0.5 / 3, 3)


@pytest.mark.parametrize(
    ("text", "value", "stated"),
    [
        ("1,200.50 m3", "1200.5", True),
        ("It is 12.", "12", True),
        ("1200", "12", False),
        ("12.5", "12", False),
        ("m3 12x", "12", False),
        ("-12", "12", False),
        ("1.2e3", "1200", True),
        ("(12)", "12", True),
        ("", "12", False),
    ],
)
def test_a_number_is_stated_however_it_is_written(text, value, stated):
    assert states_number(text, value) is stated


def test_every_criterion_has_words_of_its_own():
    criteria = analysis_criteria(QUESTION)

    assert len({criterion.description for criterion in criteria}) == len(criteria)
    assert {criterion.stage for criterion in criteria} == {"frame", "analyse", "report"}
