"""The stages of a recorded attempt with their scores."""

from collections.abc import Mapping, Sequence

from rubricem_env.domain.judgement import Rubric, StageScore, Unscored
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry
from rubricem_viewer.api.trajectories import ScoreView, StageView
from rubricem_viewer.quotations import PolicyPiece, find_quotations
from rubricem_viewer.shown_numbers import number_or_none


def rubrics_of(group: GroupEntry) -> dict[str, Rubric]:
    """Every rubric that a group knows, by id."""
    known = [*group.rubrics, *(entry.rubric for entry in group.active), *(gone.last.rubric for gone in group.retired)]
    return {rubric.id: rubric for rubric in known}


def stage_views(
    entry: RolloutEntry,
    parsed: ParsedTrajectory,
    *,
    rubrics: Mapping[str, Rubric],
    policy_pieces: Sequence[PolicyPiece],
) -> tuple[StageView, ...]:
    """All stages of a rollout, in their order."""
    rubric_scores = {score.rubric_id: score for score in entry.judged.rubric_scores}
    views = []
    for index, stage in enumerate(parsed.stages):
        outcome = entry.judged.judgement.outcome(stage)
        judged = [rubric for rubric in rubrics.values() if rubric.stage == stage and rubric.id in rubric_scores]
        views.append(
            StageView(
                stage=stage,
                happened=parsed.happened(stage),
                score=number_or_none(outcome.score) if isinstance(outcome, StageScore) else None,
                unscored=outcome.reason if isinstance(outcome, Unscored) else "",
                detail=outcome.detail if isinstance(outcome, Unscored) else "",
                true=entry.true[index] if entry.true else None,
                returned=number_or_none(entry.returns[index]) if entry.returns else None,
                advantage=number_or_none(entry.advantages[index]) if entry.advantages else None,
                scores=tuple(
                    ScoreView(
                        rubric=rubric,
                        rubric_score=rubric_scores[rubric.id],
                        passages=find_quotations(
                            rubric_scores[rubric.id].justification, parsed, stage, policy_pieces=policy_pieces
                        ),
                    )
                    for rubric in judged
                ),
            )
        )
    return tuple(views)
