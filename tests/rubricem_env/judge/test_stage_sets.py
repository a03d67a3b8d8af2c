"""Attempts in other stages are judged by the questions of their set, by rules and by a model."""

import json
from types import SimpleNamespace

import pytest

from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Rubric, Unscored
from rubricem_env.domain.trajectory import Ending, Origin, Query, Segment, Trajectory
from rubricem_env.judge.base import ScoringRequest
from rubricem_env.judge.group import Group
from rubricem_env.judge.masking import group_scores
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.model.proposed_rubrics import read_proposal
from rubricem_env.judge.model.replies import wire_proposal
from rubricem_env.judge.model.templates import PROPOSE, SCORE, read_judge_prompts
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.files import read_rubrics
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.judge.rules.rules_scorer import RulesScorer
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.scaffold.parsed import parse_trajectory
from tests.scaffolds import WRITING

QUESTION = "Write a letter that declines the invitation to the harvest concert."


def letter(outline: str, final: str) -> Trajectory:
    text = (
        f"<think>t</think><outline><aims>{outline}</aims><order>o</order></outline><draft>{final}</draft>"
        f"<revision><faults>f</faults><changes>c</changes></revision><final>{final}</final>"
    )
    segments = (Segment(origin=Origin.POLICY, text=text),)
    return Trajectory(question=QUESTION, scaffold=WRITING.scaffold, segments=segments, ending=Ending.ANSWERED)


GOOD = letter(
    "decline the invitation to the harvest concert politely",
    "Dear host, this letter declines your invitation to the harvest concert.",
)
BAD = letter("say something", "Hello there.")


async def test_the_rules_judge_every_stage_of_a_set_without_rules_of_its_own():
    step_judge = StepJudge(RulesJudge(), RubricBuffer(), stage_set=WRITING)
    judged = await step_judge.judge_group(Group.of(Query(question=QUESTION), [GOOD, BAD]), step=1)
    good, bad = judged.judgements
    assert good.stages == WRITING.scaffold.names
    assert good.score("outline") > bad.score("outline")
    assert good.score("final") > bad.score("final")
    # The revisions are the same, so no rubric separates them.
    assert good.outcome("revise") == Unscored(reason="no_rubric")
    scores, valid, _ = group_scores([good, bad])
    assert scores.shape == (2, 4)
    assert valid.all()


async def test_the_rules_scorer_scores_one_attempt_alone():
    (judgement,) = await RulesScorer(stage_set=WRITING).score([GOOD])
    assert all(score is not None for score in judgement.scores)


async def test_a_judge_of_other_stages_refuses_the_attempt():
    with pytest.raises(UsageError, match="revise, final of 'writing'; this judge knows those of"):
        await StepJudge(RulesJudge(), RubricBuffer()).judge_group(Group.of(Query(question=QUESTION), [GOOD]), step=1)
    rubric = Rubric(stage="final", title="t", description="d")
    with pytest.raises(UsageError, match="the prompts of this judge speak of plan, research, review, answer"):
        await LLMJudge(SimpleNamespace(name="m")).score(ScoringRequest(QUESTION, parse_trajectory(GOOD), (rubric,)))


def test_a_cap_of_an_unknown_stage_is_refused():
    with pytest.raises(ConfigError, match="a cap of the stage 'plan'; the stages are outline, draft, revise, final"):
        StepJudge(RulesJudge(), RubricBuffer(), settings=JudgeSettings(caps={"plan": 1}), stage_set=WRITING)


def test_the_prompts_of_a_set_name_its_stages_and_no_others():
    prompts = read_judge_prompts(None, WRITING)
    propose, score = prompts.systems[PROPOSE], prompts.systems[SCORE]
    assert "Each has four stages" in propose
    assert "- Revise: did it read its own draft honestly?" in propose
    assert "The `<aims>` inside an attempt's outline shows" in propose
    assert "Aim at 1 to 4 criteria for each of outline, draft and revise, and 2 to 5 for the final." in propose
    assert "`stage_1` (outline), `stage_2` (draft), `stage_3` (revise), `stage_4` (final)" in propose
    assert "one attempt of a writing agent" in score
    assert "TRAJECTORY holds the stages outline, draft and revise;" in score
    assert "structured_plan" not in propose + score


def test_a_proposal_has_a_field_for_each_stage():
    stage = {"positive_rubrics": [], "negative_rubrics": []}
    reply = {f"stage_{number}": stage for number in (1, 2, 3)}
    reply["stage_2"] = {**stage, "positive_rubrics": [{"title": "T", "description": "D", "weight": 2}]}
    (rubric,) = read_proposal(reply, Rubric(stage="a", title="t", description="d").provenance, refused=[], stages="abc")
    assert (rubric.stage, rubric.weight) == ("b", 2.0)
    assert list(wire_proposal(3).model_fields) == ["stage_1", "stage_2", "stage_3"]


def test_rubrics_of_a_file_are_of_the_last_stage_unless_they_say():
    rows = [{"description": "polite"}, {"description": "ordered", "stage": "outline", "persistent": False}]
    rubrics = read_rubrics(json.dumps(rows), "file", WRITING.scaffold.names)
    assert [(rubric.stage, rubric.persistent) for rubric in rubrics] == [("final", True), ("outline", False)]
