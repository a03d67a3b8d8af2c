"""ResearchQA: rubric items in batches, a phrase for each, and the mean level over the items of a question."""

from collections.abc import Iterator, Sequence

from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.files.researchqa import ResearchQAGold
from rubricem_agent.evals.grading.base import GradedExample, Totals, mean_metrics, mean_of, scores_of
from rubricem_agent.evals.grading.grade import Case, Grade
from rubricem_agent.evals.grading.prompts import JudgePrompts
from rubricem_agent.evals.grading.question import Grading, Question, Replies
from rubricem_agent.evals.modes import Rules
from rubricem_agent.evals.reply_json import Unparsed
from rubricem_agent.evals.researchqa import coverage_of, parse_batch


class ResearchQAGrader:
    """ResearchQA in any mode; the modes differ in the size of a batch and in what a failure counts."""

    is_binary = False

    def __init__(self, rules: Rules, prompts: JudgePrompts) -> None:
        self._rules = rules
        self._prompts = prompts

    @classmethod
    def for_rules(cls, rules: Rules) -> "ResearchQAGrader":
        return cls(rules, JudgePrompts.read("researchqa"))

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """One round: every batch."""
        gold = case.gold_as(ResearchQAGold)
        batches = list(self._batches(gold))
        replies = yield tuple(self._question(n, batch, answer=case.answer.text) for n, batch in enumerate(batches))
        return self._grade(gold, batches, replies=replies)

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """The unweighted mean over the questions that survived, overall and by domain."""
        return Totals("coverage", {"coverage": mean_of(scores_of(graded)), **mean_metrics(graded)})

    def _batches(self, gold: ResearchQAGold) -> Iterator[tuple[str, ...]]:
        for start in range(0, len(gold.rubric), self._rules.batch_size):
            yield gold.rubric[start : start + self._rules.batch_size]

    def _question(self, number: int, batch: Sequence[str], *, answer: str) -> Question:
        items = "\n".join(f"{place}. {item}" for place, item in enumerate(batch, start=1))
        size = len(batch)
        return Question(
            key=f"batch-{number}",
            prompt=self._prompts.user("researchqa", answer=answer, items=items, count=str(size)),
            tries=self._rules.tries,
            accepts=lambda reply: not isinstance(parse_batch(reply, size=size), Unparsed),
        )

    def _grade(self, gold: ResearchQAGold, batches: Sequence[Sequence[str]], *, replies: Sequence[Replies]) -> Grade:
        labels: list[str] = []
        failed = 0
        for batch, tries in zip(batches, replies, strict=True):
            read = parse_batch(tries[-1], size=len(batch))
            failed += len(tries) - (not isinstance(read, Unparsed))
            labels += [""] * len(batch) if isinstance(read, Unparsed) else read
        said = {f"item-{number}": label for number, label in enumerate(labels) if label}
        try:
            if "" in labels:
                raise ScoringError(
                    "dropped", f"a batch got no {self._rules.batch_size} lines in {self._rules.tries} tries"
                )
            coverage = coverage_of(labels)
        except ScoringError as refusal:
            score = 0.0 if self._rules.is_strict else None
            return Grade(score, 0.0, refusal.reason, labels=said, unreadable=failed)
        by_domain = {f"domain:{gold.general_domain}": coverage} if gold.general_domain else {}
        return Grade(coverage, coverage, metrics=by_domain, labels=said, unreadable=failed)
