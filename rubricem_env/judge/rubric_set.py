"""The rubrics of one question: persistent, active and retired. A value; each change makes a new one."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.rubric import Rubric
from rubricem_env.domain.stage import STAGES, Stage
from rubricem_env.judge.scoring import mark_variance

Step = Annotated[int, Field(ge=0)]


class StageCaps(Frozen):
    """How many active rubrics each stage keeps; the defaults are the paper's (section C.4)."""

    plan: Annotated[int, Field(ge=0)] = 3
    research: Annotated[int, Field(ge=0)] = 2
    review: Annotated[int, Field(ge=0)] = 2
    answer: Annotated[int, Field(ge=0)] = 3

    def of(self, stage: Stage) -> int:
        return (self.plan, self.research, self.review, self.answer)[stage.position]


class ActiveRubric(Frozen):
    """A rubric in use."""

    rubric: Rubric
    created_step: Step
    last_step: Step
    """When it was last proposed."""
    variance: float | None = None
    """Of its marks, when they were last measured; None where they never were."""

    @property
    def rank(self) -> tuple[float, float, int, int, str]:
        """The deterministic order in which rubrics are kept, best first (choice B9); unmeasured ones come last."""
        variance = -1.0 if self.variance is None else self.variance
        return (-variance, -self.rubric.weight, -self.last_step, -self.created_step, self.rubric.id)


class RetiredReason(StrEnum):
    """Why a rubric is in the archive."""

    SEPARATES_NOTHING = "separates_nothing"
    """All rollouts got the same mark."""
    OVER_CAP = "over_cap"
    """Others of its stage separated the group better."""


class RetiredRubric(Frozen):
    """A rubric out of use; proposed again, it comes back."""

    last: ActiveRubric
    reason: RetiredReason
    retired_step: Step


class RubricSet(Frozen):
    """What one question is judged by. A rubric is in at most one of the three places."""

    persistent: tuple[Rubric, ...] = ()
    """From the data set, Answer stage only, never retired."""
    active: tuple[ActiveRubric, ...] = ()
    archive: tuple[RetiredRubric, ...] = ()
    """Oldest first."""

    @property
    def rubrics(self) -> tuple[Rubric, ...]:
        """All that score, persistent ones first."""
        return (*self.persistent, *(entry.rubric for entry in self.active))

    def with_persistent(self, rubrics: Iterable[Rubric]) -> "RubricSet":
        """These are the data set's rubrics; what was active or retired under the same wording gives way."""
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
        """Add proposals: a new one becomes active, an active one is refreshed, a retired one comes back.

        One that says the same as another of its stage, or its mirror, is left out: the first one stands.
        """
        active = {entry.rubric.id: entry for entry in self.active}
        retired = {entry.last.rubric.id: entry for entry in self.archive}
        persistent = {rubric.id for rubric in self.persistent}
        said = {_wording(rubric): rubric.id for rubric in self.rubrics}
        for rubric in rubrics:
            if said.setdefault(_wording(rubric), rubric.id) != rubric.id or rubric.id in persistent:
                continue
            known = active.get(rubric.id) or (retired.pop(rubric.id).last if rubric.id in retired else None)
            fresh = ActiveRubric(rubric=rubric, created_step=step, last_step=step)
            active[rubric.id] = known.model_copy(update={"last_step": step}) if known else fresh
        archive = tuple(entry for entry in self.archive if entry.last.rubric.id in retired)
        return RubricSet(persistent=self.persistent, active=tuple(active.values()), archive=archive)

    def pruned(
        self, marks: Mapping[str, Sequence[float]], *, caps: StageCaps, step: int, archive_limit: int
    ) -> "RubricSet":
        """Retire what separates nothing, then cut each stage to its cap (choices B8-B11).

        `marks` holds each rubric's marks over the valid rollouts. With fewer than two there is nothing to measure,
        and the rubric keeps the variance it had.
        """
        measured = [_measure(entry, marks.get(entry.rubric.id, ())) for entry in self.active]
        flat = {e.rubric.id for e in measured if len(marks.get(e.rubric.id, ())) > 1 and e.variance == 0.0}
        kept = _within_caps([entry for entry in measured if entry.rubric.id not in flat], caps)
        retired = tuple(
            RetiredRubric(last=entry, reason=_reason(entry.rubric.id in flat), retired_step=step)
            for entry in measured
            if entry.rubric.id not in kept
        )
        archive = (*self.archive, *retired)
        return RubricSet(
            persistent=self.persistent,
            active=tuple(entry for entry in measured if entry.rubric.id in kept),
            archive=archive[max(0, len(archive) - archive_limit) :],
        )


def _wording(rubric: Rubric) -> tuple[Stage, str]:
    return rubric.stage, " ".join(rubric.description.casefold().split())


def _reason(is_flat: bool) -> RetiredReason:
    return RetiredReason.SEPARATES_NOTHING if is_flat else RetiredReason.OVER_CAP


def _measure(entry: ActiveRubric, marks: Sequence[float]) -> ActiveRubric:
    return entry if len(marks) < 2 else entry.model_copy(update={"variance": mark_variance(marks)})


def _within_caps(entries: Sequence[ActiveRubric], caps: StageCaps) -> set[str]:
    return {
        entry.rubric.id
        for stage in STAGES
        for entry in sorted((e for e in entries if e.rubric.stage is stage), key=attrgetter("rank"))[: caps.of(stage)]
    }
