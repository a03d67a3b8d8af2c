"""What was said of each stage of a trajectory: score, verdicts with the passages that they quote, credit, truth."""

from collections.abc import Mapping

from rubricem_agent.learn.run_record import GroupEntry, RolloutEntry
from rubricem_agent.viewer.api_models.trajectories import RubricView, StageView, VerdictView
from rubricem_agent.viewer.quotations import Passages, find_quotations
from rubricem_agent.viewer.rows import number_or_none
from rubricem_env.domain.judgement import StageScore, Unscored
from rubricem_env.domain.rubric import Polarity, Rubric
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.judge.opinion import Opinion
from rubricem_env.judge.scoring import fulfillment
from rubricem_env.scaffold.reading import Reading


def rubric_view(rubric: Rubric) -> RubricView:
    return RubricView(
        id=rubric.id,
        stage=rubric.stage.value,
        title=rubric.title,
        description=rubric.description,
        polarity="positive" if rubric.polarity is Polarity.POSITIVE else "negative",
        weight=rubric.weight,
        persistent=rubric.persistent,
        step=rubric.provenance.step,
        model=rubric.provenance.model,
    )


def rubrics_of(group: GroupEntry) -> dict[str, Rubric]:
    """Every rubric that a group knows, by id."""
    known = [*group.rubrics, *(entry.rubric for entry in group.active), *(gone.last.rubric for gone in group.retired)]
    return {rubric.id: rubric for rubric in known}


class StageViews:
    """Makes the views of one rollout."""

    def __init__(self, entry: RolloutEntry, reading: Reading, *, rubrics: Mapping[str, Rubric], passages: Passages):
        self._entry = entry
        self._reading = reading
        self._rubrics = rubrics
        self._passages = passages

    def make(self) -> tuple[StageView, ...]:
        """All four, in their order."""
        return tuple(self._stage(stage) for stage in STAGES)

    def _stage(self, stage: Stage) -> StageView:
        entry, place = self._entry, stage.position
        outcome = entry.judged.judgement.outcome(stage)
        return StageView(
            stage=stage.value,
            happened=self._reading.happened(stage),
            score=number_or_none(outcome.score) if isinstance(outcome, StageScore) else None,
            unscored=outcome.reason.value if isinstance(outcome, Unscored) else "",
            detail=outcome.detail if isinstance(outcome, Unscored) else "",
            true=entry.true[place] if entry.true else None,
            returned=number_or_none(entry.returns[place]) if entry.returns else None,
            advantage=number_or_none(entry.advantages[place]) if entry.advantages else None,
            verdicts=self._verdicts(stage),
        )

    def _verdicts(self, stage: Stage) -> tuple[VerdictView, ...]:
        """One for each opinion on a rubric of this stage, in the order of the rubrics."""
        opinions = {opinion.rubric_id: opinion for opinion in self._entry.judged.opinions}
        return tuple(
            self._verdict(rubric, opinions[rubric.id])
            for rubric in self._rubrics.values()
            if rubric.stage is stage and rubric.id in opinions
        )

    def _verdict(self, rubric: Rubric, opinion: Opinion) -> VerdictView:
        return VerdictView(
            rubric=rubric_view(rubric),
            mark=opinion.mark,
            marks=opinion.marks,
            fulfilled=fulfillment(rubric, opinion.mark),
            reason=opinion.justification,
            places=find_quotations(
                opinion.justification,
                self._reading.policy_text,
                spans=self._reading.spans.of(rubric.stage),
                passages=self._passages,
            ),
        )
