"""The rubrics of one question: which are active, which are retired, and the caps of each stage."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Literal

from rubricem_env.domain.base import Count, Frozen, StageName
from rubricem_env.domain.judgement import Rubric
from rubricem_env.judge.rubrics.separation import score_variance

StageCaps = Mapping[StageName, Count]
"""How many active rubrics each stage keeps, by its name."""


class ActiveRubric(Frozen):
    """A rubric in use."""

    rubric: Rubric
    created_step: Count
    last_step: Count
    """The step at which it was last proposed."""
    variance: float | None = None
    """The variance of its scores when they were last measured. It is None if they never were."""

    @property
    def rank(self) -> tuple[float, float, int, int, str]:
        """The sort key for keeping rubrics, best first; unmeasured ones come last."""
        variance = -1.0 if self.variance is None else self.variance
        return (-variance, -self.rubric.weight, -self.last_step, -self.created_step, self.rubric.id)


RetiredReason = Literal["separates_nothing", "over_cap"]
"""All rollouts got the same score, or others of the stage separated the group better."""


class RetiredRubric(Frozen):
    """A rubric out of use; it becomes active again when it is proposed again."""

    last: ActiveRubric
    reason: RetiredReason
    retired_step: Count


class RubricSet(Frozen):
    """The rubrics of one question, as an immutable value. A rubric is in at most one of the three fields."""

    persistent: tuple[Rubric, ...] = ()
    """The rubrics of the data set. They are of the Answer stage only, and are never retired."""
    active: tuple[ActiveRubric, ...] = ()
    archive: tuple[RetiredRubric, ...] = ()
    """The retired rubrics, the oldest first."""

    @property
    def rubrics(self) -> tuple[Rubric, ...]:
        """All rubrics in use, persistent ones first."""
        return (*self.persistent, *(entry.rubric for entry in self.active))

    def with_persistent(self, rubrics: Iterable[Rubric]) -> "RubricSet":
        """Replace the data set's rubrics; active and retired rubrics of the same wording are dropped."""
        persistent = tuple({rubric.id: rubric for rubric in rubrics}.values())
        if persistent == self.persistent:
            return self
        ids = {rubric.id for rubric in persistent}
        return RubricSet(
            persistent=persistent,
            active=tuple(entry for entry in self.active if entry.rubric.id not in ids),
            archive=tuple(entry for entry in self.archive if entry.last.rubric.id not in ids),
        )

    def with_proposed(self, rubrics: Iterable[Rubric], *, step: int) -> "RubricSet":
        """Add proposals: a new one becomes active, an active one is refreshed, a retired one becomes active again.

        A proposal with the wording of another rubric of its stage is left out, whatever its polarity.
        """
        active = {entry.rubric.id: entry for entry in self.active}
        retired = {entry.last.rubric.id: entry for entry in self.archive}
        persistent = {rubric.id for rubric in self.persistent}
        said = {(rubric.stage, rubric.wording): rubric.id for rubric in self.rubrics}
        for rubric in rubrics:
            if said.setdefault((rubric.stage, rubric.wording), rubric.id) != rubric.id or rubric.id in persistent:
                continue
            known = active.get(rubric.id) or (retired.pop(rubric.id).last if rubric.id in retired else None)
            fresh = ActiveRubric(rubric=rubric, created_step=step, last_step=step)
            active[rubric.id] = known.model_copy(update={"last_step": step}) if known else fresh
        archive = tuple(entry for entry in self.archive if entry.last.rubric.id in retired)
        return RubricSet(persistent=self.persistent, active=tuple(active.values()), archive=archive)

    def pruned(
        self,
        scores: Mapping[str, Sequence[float]],
        *,
        caps: StageCaps,
        step: int,
        archive_limit: int,
        retires_flat: bool = True,
    ) -> "RubricSet":
        """Retire rubrics that separate nothing, unless `retires_flat` is False; then reduce each stage to its cap.

        `scores` has each rubric's scores over the valid rollouts. With fewer than two there is nothing to measure, and
        the rubric keeps its variance.
        """
        variances = {key: score_variance(own) for key, own in scores.items() if len(own) > 1}
        measured = [
            entry.model_copy(update={"variance": variances.get(entry.rubric.id, entry.variance)})
            for entry in self.active
        ]
        flat = {key for key, variance in variances.items() if variance == 0.0}
        contenders = [entry for entry in measured if not retires_flat or entry.rubric.id not in flat]
        kept = _within_caps(contenders, caps)
        retired = tuple(
            RetiredRubric(
                last=entry,
                reason="separates_nothing" if retires_flat and entry.rubric.id in flat else "over_cap",
                retired_step=step,
            )
            for entry in measured
            if entry.rubric.id not in kept
        )
        archive = (*self.archive, *retired)
        return RubricSet(
            persistent=self.persistent,
            active=tuple(entry for entry in measured if entry.rubric.id in kept),
            archive=archive[max(0, len(archive) - archive_limit) :],
        )


def _within_caps(entries: Sequence[ActiveRubric], caps: StageCaps) -> set[str]:
    return {
        entry.rubric.id
        for stage, cap in caps.items()
        for entry in sorted((e for e in entries if e.rubric.stage == stage), key=attrgetter("rank"))[:cap]
    }
