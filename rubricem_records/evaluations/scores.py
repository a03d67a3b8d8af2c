"""Every number of an evaluation, as its scores.json holds them."""

from pathlib import Path

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import read_text, validating
from rubricem_env.llm.usage import Usage
from rubricem_records.evaluations.manifest import SCORES_FILE, EvaluationManifest, read_manifest
from rubricem_records.evaluations.statistics import MeanInterval


class ModelCost(Frozen):
    """The cost of one model in one stage, run or estimated."""

    stage: Text
    model: Text
    usage: Usage
    dollars: float
    is_priced: bool
    """Whether the model's price is known; otherwise the dollars are incomplete."""


SCORES_VERSION = 1


class JudgeScores(Frozen):
    """The numbers by one judge. All between 0 and 1 where the benchmark is; a report shows them times 100."""

    judge: Text
    headline: Text
    score: float | None
    """None where nothing could be scored."""
    worst: float | None
    """The mean if every exclusion and every unreadable verdict counted as the worst case."""
    spread: MeanInterval | None
    wilson: MeanInterval | None
    """Only for scores of 0 and 1 in one epoch: repeats of an example are not independent."""
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
    """Replies of the judge from which no verdict could be read."""
    read_differently: int = 0
    """Replies that the official parse, by which the mode grades, reads in another way than as one verdict or none."""
    replies: int
    """The number of replies of the judge that were read."""

    @property
    def unreadable_share(self) -> float | None:
        """The share of replies that could not be read; None where there is no reply."""
        return self.unreadable / self.replies if self.replies else None

    @property
    def interval(self) -> MeanInterval | None:
        """The interval that fits the benchmark: Wilson for rates, bootstrap for the others."""
        return self.wilson or self.spread


class JudgeAgreement(Frozen):
    """Two judges on the same questions."""

    first: Text
    second: Text
    n: int
    share: float
    kappa: float


class Scores(Frozen):
    """Every number of a run."""

    version: int = SCORES_VERSION
    manifest: EvaluationManifest
    judges: tuple[JudgeScores, ...]
    agreements: tuple[JudgeAgreement, ...] = ()
    variance: dict[str, float] | None = None
    """The variance over the epochs: `between` the examples and `within` an example."""
    expected: int
    """Examples times epochs."""
    answered: int
    failures: dict[str, int]
    """Attempts that failed, by reason."""
    found: dict[str, int]
    """How the answers were found."""
    endings: dict[str, int]
    unanswered: dict[str, int]
    """Attempts that ended without an answer, by how they ended; they are graded, as empty answers."""
    costs: tuple[ModelCost, ...]
    seconds: float
    """The sum over all attempts and verdicts, which in fact ran concurrently."""

    @property
    def is_complete(self) -> bool:
        """Whether every example was answered, not each with nothing, and every answer has a grade by every judge."""
        is_graded = self.answered == self.expected and not any(judge.ungraded for judge in self.judges)
        return is_graded and not self.manifest.warning

    @property
    def empty_answers(self) -> str:
        """How many attempts ended without an answer, and how they ended, as a sentence; empty where none did."""
        count = sum(self.unanswered.values())
        how = ", ".join(f"{number} {ending}" for ending, number in self.unanswered.items())
        return f"{count} of {self.answered} attempts ended without an answer ({how})" if count else ""

    @property
    def headline(self) -> JudgeScores:
        """The numbers of the first judge."""
        return self.judges[0]

    @property
    def dollars(self) -> float:
        return sum(cost.dollars for cost in self.costs)


NO_JUDGE = "none"


def read_scores(folder: Path) -> Scores:
    """The stored scores of a run.

    Raises:
        FileFormatError: there are none, or none of this release, or the folder is no run.
    """
    path = folder / SCORES_FILE
    rescore = f"`rubricem eval rescore {folder}`"
    if not path.exists():
        read_manifest(folder)
        raise FileFormatError(f"{folder} has no scores; run {rescore} to compute them from its logs.")
    with validating(f"{path} cannot be read", f"Compute it again with {rescore}."):
        return Scores.model_validate_json(read_text(path, "the scores of a run"))
