"""Episodes in the stages of data_analysis, judged by truth: rubrics and scores of three stages."""

import asyncio

import numpy as np
import pytest

from rubricem_env.domain.stage_set import read_stage_set
from rubricem_env.env.episode import Episode
from rubricem_env.judge.group import Group
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.testing.episodes import play_turns
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.guard import GuardedTool
from rubricem_env.tools.tables.run_sql import RunSql
from rubricem_env.world.judge import AlmanacJudge, true_quality, true_rubrics
from rubricem_env.world.tables.analyst import TableAnalyst
from rubricem_env.world.tables.analyst_faults import NO_ANALYST_SLIPS, AnalystSlips
from rubricem_env.world.tables.attempts import table_query
from rubricem_env.world.tables.table_world import TableWorld

WORLD = TableWorld.from_seed(0)
QUESTION = next(question for question in WORLD.questions if question.kind == "flow" and len(question.mistakes) == 5)
STALE = next(mistake for mistake in QUESTION.mistakes if mistake.kind == "stale_table")
STAGES = read_stage_set("data_analysis")
SLIPS = (
    NO_ANALYST_SLIPS,
    AnalystSlips(framed=STALE),
    AnalystSlips(queried=STALE),
    AnalystSlips(invented="7", forgets_citation=True),
)


@pytest.fixture(scope="module")
def attempts(tmp_path_factory):
    """One attempt for each of the slips, played to its end."""
    place = tmp_path_factory.mktemp("world") / "world.sqlite"
    WORLD.write_sqlite(place)

    async def play_all():
        tool = GuardedTool(RunSql.open(place, processes=1), timing=Timing.real())
        played = [await play(LocalToolbox(tool), slips) for slips in SLIPS]
        await tool.aclose()
        return played

    return asyncio.run(play_all())


async def play(toolbox, slips):
    episode = Episode(table_query(QUESTION), scaffold=STAGES.scaffold)
    return (await play_turns(episode, toolbox, TableAnalyst(QUESTION, slips).turn)).read()


def test_the_analyst_is_accepted_by_strict_mode_and_every_stage_happens(attempts):
    for parsed in attempts:
        assert parsed.rejections == ()
        assert all(parsed.happened(stage) for stage in ("frame", "analyse", "report"))


def test_true_quality_is_lowered_where_the_fault_is(attempts):
    perfect, framed, queried, invented = (true_quality(QUESTION, parsed) for parsed in attempts)

    assert perfect == (1.0, 1.0, 1.0)
    # Of seven criteria of the frame the table stations is lost, and an outdated one is used.
    assert framed[0] == pytest.approx(5 / 7)
    assert queried[0] == 1.0
    # Half of the right tables; the number is not found and the last one is wrong: (0.5 + 0 + 0 + 1) / 4.
    assert framed[1] == queried[1] == pytest.approx(0.375)
    # The number is not stated, nothing is cited, but 7 is no usual mistake.
    assert invented == pytest.approx((1.0, 1.0, 1 / 3))


def test_a_group_gets_rubrics_and_scores_in_three_stages(attempts):
    judge = AlmanacJudge([QUESTION])
    group = Group(table_query(QUESTION), tuple(attempts))
    (judged,) = asyncio.run(StepJudge(judge, RubricBuffer(), stage_set=STAGES).judge_step([group], step=0))
    scores = np.array([[each.score(stage) for stage in ("frame", "analyse", "report")] for each in judged.judgements])

    assert scores.shape == (4, 3)
    assert scores[0].tolist() == [1.0, 1.0, 1.0]
    assert scores[1, 0] < scores[2, 0] == 1.0
    assert scores[2, 1] < 1.0 == scores[3, 1]
    assert scores[3, 2] < 1.0
    assert {rubric.stage for rubric in true_rubrics(QUESTION)} == {"frame", "analyse", "report"}


def test_the_question_that_a_policy_sees_holds_no_number_of_the_truth():
    query = table_query(QUESTION)

    assert QUESTION.value not in query.question
    assert all(rubric.persistent and rubric.stage == "report" for rubric in query.rubrics)
