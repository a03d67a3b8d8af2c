"""The numbers of a run as they are kept and shown: every one with its mode, its size and its uncertainty."""

from collections.abc import Iterable

from rubricem_agent.evals.run.manifest import Manifest
from rubricem_agent.evals.run.money import Cost
from rubricem_env.domain.base import Frozen, Text

SCORES_VERSION = 1


class Spread(Frozen):
    """How sure a mean is."""

    low: float
    high: float
    stderr: float
    n: int
    method: Text
    """Such as "bootstrap over 100 prompts, 1000 draws, 95 %"."""


class JudgeScores(Frozen):
    """The numbers by one judge. All between 0 and 1 where the benchmark is; a report shows them times 100."""

    judge: Text
    headline: Text
    score: float | None
    """None where nothing could be scored."""
    worst: float | None
    """The mean if every exclusion and every unreadable verdict counted as the worst case."""
    spread: Spread | None
    wilson: Spread | None
    """For scores of 0 and 1 alone, and one epoch: repeats of an example are not independent."""
    metrics: dict[str, float | None]
    texts: dict[str, Text]
    per_example: dict[str, float]
    """Mean over the epochs, by example id: what two runs are compared on."""
    graded: int
    excluded: dict[str, int]
    """Left out by the mode's own rule, by reason."""
    ungraded: dict[str, int]
    """Outages, by reason: never a score. With any, the run is incomplete."""
    unreadable: int
    """Replies of the judge that no verdict could be read from."""


class Agreement(Frozen):
    """Two judges on the same questions."""

    first: Text
    second: Text
    n: int
    share: float
    kappa: float


class EpochVariance(Frozen):
    """Where the variance of repeated runs comes from."""

    between: float
    within: float


class Scores(Frozen):
    """Everything that is known of a run."""

    version: int = SCORES_VERSION
    manifest: Manifest
    judges: tuple[JudgeScores, ...]
    agreements: tuple[Agreement, ...] = ()
    variance: EpochVariance | None = None
    expected: int
    """Examples times epochs."""
    answered: int
    failures: dict[str, int]
    """Attempts that failed on the way, by reason."""
    found: dict[str, int]
    """How the answers were found."""
    endings: dict[str, int]
    costs: tuple[Cost, ...]
    seconds: float
    """Of all attempts and verdicts together, as if one had followed the other."""

    @property
    def is_complete(self) -> bool:
        """Whether every example has an answer, and every answer a grade by every judge."""
        return self.answered == self.expected and not any(judge.ungraded for judge in self.judges)

    @property
    def headline(self) -> JudgeScores:
        """The numbers of the first judge."""
        return self.judges[0]

    @property
    def dollars(self) -> float:
        return sum(cost.dollars for cost in self.costs)


def count_reasons(reasons: Iterable[str]) -> dict[str, int]:
    """Reasons with how often each was given, the most frequent first."""
    counts: dict[str, int] = {}
    for reason in reasons:
        counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
