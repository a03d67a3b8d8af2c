"""The analyst plays against the tool; each of its faults lowers the true quality of the stage that it is in."""

import asyncio
import re
from statistics import mean

import pytest

from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.tools.render import render_observation
from rubricem_env.tools.tables.run_sql import RunSql
from rubricem_env.world.tables.analyst import TableAnalyst
from rubricem_env.world.tables.analyst_faults import NO_ANALYST_SLIPS, AnalystFaults, AnalystSlips, draw_analyst_slips
from rubricem_env.world.tables.criteria import ANALYSIS_STAGES, AnalysisEvidence, analysis_quality
from rubricem_env.world.tables.table_world import TableWorld

WORLD = TableWorld.from_seed(0)
QUESTIONS = WORLD.questions[::4]
CALL = re.compile(r'<call_tool name="run_sql">(.*?)</call_tool>', re.DOTALL)


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    place = tmp_path_factory.mktemp("world") / "world.sqlite"
    WORLD.write_sqlite(place)
    opened = RunSql.open(place, processes=1)
    yield opened
    asyncio.run(opened.aclose())


def play(tool, question, slips):
    """The text of the policy, the observations and the calls of an attempt."""
    analyst = TableAnalyst(question, slips)
    text, observations, calls = "", [], []
    while True:
        turn = analyst.turn(observations)
        text += turn
        call = CALL.search(turn)
        if call is None:
            return text, observations, calls
        calls.append(call[1])
        result, _ = asyncio.run(tool.answer(ToolCall(name="run_sql", query=call[1])))
        observations.append(render_observation(result, first_id=len(observations) + 1)[0])


def quality(tool, question, slips):
    text, observations, calls = play(tool, question, slips)
    frame, _, rest = text.partition("</frame>")
    analyse, _, report = rest.partition("<report>")
    stages = dict(zip(ANALYSIS_STAGES, (frame, analyse, report), strict=True))
    return analysis_quality(question, AnalysisEvidence.of(stages, observations=observations, calls=calls))


def mean_quality(tool, faults):
    played = [quality(tool, question, draw_analyst_slips(question, faults, seed=0)) for question in QUESTIONS]
    return {stage: mean(each[stage] for each in played) for stage in ANALYSIS_STAGES}


def test_an_analyst_without_faults_is_perfect_in_every_stage(tool):
    assert mean_quality(tool, AnalystFaults()) == dict.fromkeys(ANALYSIS_STAGES, 1.0)


@pytest.mark.parametrize(
    ("fault", "lowered"),
    [
        ("frame_mistake", ("frame", "analyse", "report")),
        ("query_mistake", ("analyse", "report")),
        ("repeat_query", ("analyse",)),
        ("invent_number", ("report",)),
        ("forget_unit", ("report",)),
        ("forget_citation", ("report",)),
    ],
)
def test_a_fault_lowers_its_stage_and_what_rests_on_it_alone(tool, fault, lowered):
    reached = mean_quality(tool, AnalystFaults(**{fault: 1.0}))

    assert tuple(stage for stage in ANALYSIS_STAGES if reached[stage] < 1.0) == lowered


def test_the_same_observations_give_the_same_turns_and_the_same_seed_the_same_faults(tool):
    question = QUESTIONS[0]
    faults = AnalystFaults(query_mistake=0.5, invent_number=0.5, forget_citation=0.5)
    slips = [draw_analyst_slips(question, faults, seed=seed) for seed in range(20)]

    assert play(tool, question, slips[0]) == play(tool, question, slips[0])
    assert slips == [draw_analyst_slips(question, faults, seed=seed) for seed in range(20)]
    assert len(set(slips)) > 3
    assert draw_analyst_slips(question, AnalystFaults(), seed=0) == NO_ANALYST_SLIPS._replace(
        **draw_analyst_slips(question, AnalystFaults(), seed=0)._asdict()
    )


def test_a_failed_query_is_reported_as_no_number():
    question = QUESTIONS[0]
    failed = "<tool_output>\nThe call failed (timeout): the query was stopped.\n</tool_output>"

    assert TableAnalyst(question).turn([failed]) == (
        "<think>I read the result.</think><reading>No number.</reading><report>The tables do not say.</report>"
    )


def test_a_framed_mistake_shows_in_the_frame():
    flow = next(question for question in WORLD.questions if question.kind == "flow" and len(question.mistakes) == 5)
    frames = {
        mistake.kind: TableAnalyst(flow, AnalystSlips(framed=mistake)).turn([]).partition("</frame>")[0]
        for mistake in flow.mistakes
    }

    assert "stations_2019" in frames["stale_table"]
    assert "readings_merged" in frames["doubled_table"]
    assert "m3/s" not in frames["wrong_unit"]
    assert ", ok" not in frames["missing_filter"]
