"""How many traces were rejected, and for what: the paper's four reasons apart from ours."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rubricem_agent.data.reject import Rejection
from rubricem_env.domain.base import Frozen, Text


class ReasonCount(Frozen):
    """One reason over all traces."""

    reason: Text
    is_paper: bool
    named: int
    """Traces against which it speaks, perhaps with others."""
    alone: int
    """Traces against which nothing else speaks."""
    example: Text
    """What was said of the first of them."""


class RejectionReport(Frozen):
    """The outcome of filtering. A trace with several reasons is one rejected trace."""

    traces: int
    accepted: int
    by_paper: int
    """Rejected traces that one of the paper's four reasons alone would reject."""
    reasons: tuple[ReasonCount, ...]
    """The paper's first, then ours; most frequent first."""

    @property
    def rejected(self) -> int:
        return self.traces - self.accepted


def count_rejections(judged: Sequence[Sequence[Rejection]]) -> RejectionReport:
    """The report over the reasons found against each trace; an accepted trace has none."""
    named: Counter[tuple[str, bool]] = Counter()
    alone: Counter[tuple[str, bool]] = Counter()
    examples: dict[tuple[str, bool], str] = {}
    for rejections in judged:
        kinds = _kinds(rejections)
        named.update(kinds)
        alone.update(kinds if len(kinds) == 1 else ())
        for rejection in rejections:
            examples.setdefault((rejection.reason, rejection.is_paper), rejection.message)
    order = sorted(named, key=lambda kind: (not kind[1], -named[kind], kind[0]))
    return RejectionReport(
        traces=len(judged),
        accepted=sum(not rejections for rejections in judged),
        by_paper=sum(any(rejection.is_paper for rejection in rejections) for rejections in judged),
        reasons=tuple(
            ReasonCount(reason=k[0], is_paper=k[1], named=named[k], alone=alone[k], example=examples[k]) for k in order
        ),
    )


def _kinds(rejections: Iterable[Rejection]) -> list[tuple[str, bool]]:
    return list(dict.fromkeys((rejection.reason, rejection.is_paper) for rejection in rejections))
