"""A judged group as plain values: what `rubricem judge --json` prints and the viewer shows."""

from collections.abc import Sequence
from typing import Any

from rubricem_env.domain.judgement import StageScore, Unscored
from rubricem_env.domain.stage import STAGES
from rubricem_env.judge.outcomes import GroupJudgement, RolloutJudgement
from rubricem_env.judge.rubric_set import RubricSet


def describe_group(judged: GroupJudgement, names: Sequence[str], *, rubrics: RubricSet) -> dict[str, Any]:
    """Trajectories by name with stages and criteria, and the question's rubrics as they are now."""
    return {
        "trajectories": [
            {"file": name, **describe_rollout(judged, rollout)}
            for name, rollout in zip(names, judged.rollouts, strict=True)
        ],
        "buffer": describe_buffer(rubrics),
        "judge": judged.judge,
        "proposal": {"failure": judged.proposal_failure or None, "refused": list(judged.refused)},
    }


def describe_rollout(judged: GroupJudgement, rollout: RolloutJudgement) -> dict[str, Any]:
    """Stages with a score or the reason why there is none, and one row for each criterion that was marked."""
    opinions = {opinion.rubric_id: opinion for opinion in rollout.opinions}
    criteria = [
        {
            "stage": rubric.stage.value,
            "title": rubric.title,
            "description": rubric.description,
            "polarity": rubric.polarity.value,
            "weight": rubric.weight,
            "score": opinions[rubric.id].verdict().score,
            "justification": opinions[rubric.id].justification,
            "persistent": rubric.persistent,
            **({"marks": list(opinions[rubric.id].marks)} if opinions[rubric.id].marks else {}),
        }
        for rubric in sorted(judged.rubrics, key=lambda rubric: STAGES.index(rubric.stage))
        if rubric.id in opinions
    ]
    stages = {stage.value: _describe_stage(rollout.judgement.outcome(stage)) for stage in STAGES}
    notes = {
        "answer_only": rollout.is_answer_only,
        "failure": rollout.failure or None,
        "prompt_hash": rollout.prompt_hash or None,
        "bait": list(rollout.bait),
    }
    return {"stages": stages, "criteria": criteria, **notes}


def describe_buffer(rubrics: RubricSet) -> dict[str, Any]:
    """Persistent, active and retired rubrics, the last with the reason."""
    return {
        "persistent": [rubric.model_dump(mode="json") for rubric in rubrics.persistent],
        "active": [
            {**entry.rubric.model_dump(mode="json"), "variance": entry.variance, "created_step": entry.created_step}
            for entry in rubrics.active
        ],
        "archive": [
            {**gone.last.rubric.model_dump(mode="json"), "reason": gone.reason.value, "retired_step": gone.retired_step}
            for gone in rubrics.archive
        ],
    }


def _describe_stage(outcome: StageScore | Unscored) -> dict[str, Any]:
    if isinstance(outcome, Unscored):
        detail = {"detail": outcome.detail} if outcome.detail else {}
        return {"unscored": outcome.reason.value, **detail}
    return {"score": outcome.score, **({"missing": True} if outcome.missing else {})}
