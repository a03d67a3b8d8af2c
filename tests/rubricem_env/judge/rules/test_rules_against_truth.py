"""The rules judge in the almanac, where the true quality of each stage is known and the judge does not see it."""

import statistics

import pytest

from rubricem_env.domain.base import STAGES
from rubricem_env.env.episode import Episode
from rubricem_env.judge.group import Group
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.testing.episodes import play_turns
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.expert import AlmanacTeacher
from rubricem_env.world.expert_faults import Faults, draw_slips
from rubricem_env.world.judge import true_quality
from rubricem_env.world.offline import query_of, shipped_toolbox

FAULTS = Faults(
    skip_need=0.4, repeat_query=0.4, trust_stale=0.4, claim_unfound=0.4, forget_citation=0.4, miss_convention=0.4
)
ROLLOUTS = 8


async def play(question, seed):
    teacher = AlmanacTeacher(question, draw_slips(question, FAULTS, seed=seed))
    return (await play_turns(Episode(query_of(question)), shipped_toolbox(), teacher.turn)).trajectory


def correlation(judged, true):
    """None where either side is the same for all: there is nothing to order."""
    return None if len(set(judged)) < 2 or len(set(true)) < 2 else statistics.correlation(judged, true)


@pytest.mark.no_cover
async def test_within_a_group_the_rules_order_attempts_as_truth_does(record_testsuite_property):
    questions = [q for q in load_questions(shipped_questions_path()) if q.split != "train"]
    groups = [Group.of(query_of(q), [await play(q, seed) for seed in range(ROLLOUTS)]) for q in questions]
    outcomes = await StepJudge(RulesJudge(), RubricBuffer()).judge_step(groups, step=1)
    for stage in STAGES:
        found = []
        for question, group, judged in zip(questions, groups, outcomes, strict=True):
            scores = [judgement.score(stage) or 0.0 for judgement in judged.judgements]
            truth = [true_quality(question, parsed)[stage.position] for parsed in group.trajectories]
            found.append(correlation(scores, truth))
        means = statistics.mean(value for value in found if value is not None)
        record_testsuite_property(f"{stage!s}_correlation", round(means, 2))
        assert means > 0.4
