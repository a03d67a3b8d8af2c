"""Describes a judged group as JSON values, as `rubricem judge` prints it."""

from collections.abc import Sequence
from typing import Any

from rubricem_env.domain.judgement import StageScore, Unscored
from rubricem_env.judge.judgements import GroupJudgement, RolloutJudgement
from rubricem_env.judge.rubrics.rubric_set import RubricSet


def describe_group(judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet) -> dict[str, Any]:
    """Trajectories by name with stages and criteria, and the question's present rubrics, as JSON values."""
    return {
        "trajectories": [
            {"file": name, **describe_rollout(judged, rollout)}
            for name, rollout in zip(names, judged.rollouts, strict=True)
        ],
        "buffer": {
            "persistent": [rubric.model_dump(mode="json") for rubric in rubrics.persistent],
            "active": [
                {**entry.rubric.model_dump(mode="json"), "variance": entry.variance, "created_step": entry.created_step}
                for entry in rubrics.active
            ],
            "archive": [
                {**gone.last.rubric.model_dump(mode="json"), "reason": gone.reason, "retired_step": gone.retired_step}
                for gone in rubrics.archive
            ],
        },
        "judge": judged.judge,
        "proposal": {"failure": judged.proposal_failure or None, "refused": list(judged.refused)},
    }


def describe_rollout(judged: GroupJudgement, rollout: RolloutJudgement) -> dict[str, Any]:
    """Each stage with its score or why it has none, and one row for each scored rubric."""
    stages = rollout.judgement.stages
    rubric_scores = {score.rubric_id: score for score in rollout.rubric_scores}
    criteria = [
        {
            **rubric.model_dump(mode="json", exclude={"provenance"}),
            "score": rubric_scores[rubric.id].rounded,
            "justification": rubric_scores[rubric.id].justification,
            **({"scores": list(rubric_scores[rubric.id].scores)} if rubric_scores[rubric.id].scores else {}),
        }
        for rubric in sorted(judged.rubrics, key=lambda rubric: stages.index(rubric.stage))
        if rubric.id in rubric_scores
    ]
    return {
        "stages": {stage: _describe_stage(rollout.judgement.outcome(stage)) for stage in stages},
        "criteria": criteria,
        "answer_only": rollout.is_answer_only,
        "failure": rollout.failure or None,
        "prompt_hash": rollout.prompt_hash or None,
        "injections": list(rollout.injections),
    }


def _describe_stage(outcome: StageScore | Unscored) -> dict[str, Any]:
    if isinstance(outcome, Unscored):
        return {"unscored": outcome.reason, **({"detail": outcome.detail} if outcome.detail else {})}
    return {"score": outcome.score, **({"missing": True} if outcome.missing else {})}
