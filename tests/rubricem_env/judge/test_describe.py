"""A judged group as JSON values."""

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.judgement import Judgement, RubricScore, StageScore, Unscored
from rubricem_env.judge.describe import describe_group, describe_rollout
from rubricem_env.judge.judgements import GroupJudgement, RolloutJudgement
from rubricem_env.judge.rubrics.rubric_set import RubricSet
from tests.fakes import rubric

ANSWER, PLAN = rubric("a"), rubric("p", Stage.PLAN)


def judged(*rollouts: RolloutJudgement, **changes) -> GroupJudgement:
    fields = {"query_key": "k", "step": 1, "fingerprint": "f", "rubrics": (ANSWER, PLAN), "rollouts": rollouts}
    return GroupJudgement(**fields | {"judge": "rules"} | changes)


def rollout() -> RolloutJudgement:
    outcomes: dict[Stage, StageScore | Unscored] = {stage: StageScore(score=0.5) for stage in STAGES[:2]}
    outcomes[Stage.REVIEW] = StageScore(score=0.0, missing=True)
    outcomes[Stage.ANSWER] = Unscored(reason="judge_failed", detail="away")
    scores = (RubricScore.whole(ANSWER.id, 2, "said"), RubricScore.whole(PLAN.id, 0, "not said"))
    return RolloutJudgement(judgement=Judgement.of(outcomes), rubric_scores=scores)


def test_stages_have_a_score_or_the_reason_for_none_and_criteria_come_in_the_order_of_the_stages():
    described = describe_rollout(judged(rollout()), rollout())
    assert described["stages"] == {
        "plan": {"score": 0.5},
        "research": {"score": 0.5},
        "review": {"score": 0.0, "missing": True},
        "answer": {"unscored": "judge_failed", "detail": "away"},
    }
    assert [(row["title"], row["score"], row["justification"]) for row in described["criteria"]] == [
        (PLAN.title, 0, "not said"),
        (ANSWER.title, 2, "said"),
    ]
    assert all("provenance" not in row for row in described["criteria"])
    nothing = {"answer_only": False, "failure": None, "prompt_hash": None, "injections": []}
    assert {name: described[name] for name in nothing} == nothing


def test_a_rubric_that_was_not_scored_is_no_criterion_and_what_there_is_to_say_is_said():
    attempt = rollout().model_copy(
        update={
            "rubric_scores": (),
            "failure": "away",
            "prompt_hash": "h",
            "injections": ("order",),
            "is_answer_only": True,
        }
    )
    described = describe_rollout(judged(attempt), attempt)
    assert described["criteria"] == []
    said = {"answer_only": True, "failure": "away", "prompt_hash": "h", "injections": ["order"]}
    assert {name: described[name] for name in said} == said


def test_a_group_has_its_files_and_the_rubrics_that_the_question_has_now():
    group = judged(rollout(), rollout(), proposal_failure="away")
    rubrics = RubricSet().with_proposed([PLAN], step=3)
    described = describe_group(group, ["one.json", "two.json"], rubrics=rubrics)
    assert [one["file"] for one in described["trajectories"]] == ["one.json", "two.json"]
    assert described["judge"] == "rules"
    assert described["proposal"] == {"failure": "away", "refused": []}
    (entry,) = described["buffer"]["active"]
    assert (entry["title"], entry["created_step"]) == (PLAN.title, 3)
    assert (described["buffer"]["persistent"], described["buffer"]["archive"]) == ([], [])
