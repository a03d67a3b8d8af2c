"""DeepResearchBench: RACE against a reference article and, where it is asked for, FACT beside it."""

from collections.abc import Mapping, Sequence

from rubricem_agent.evals.drb_fact import score_records
from rubricem_agent.evals.drb_race import TaskCriteria, TaskFailure, judge_task
from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.files.drb import DrbGold
from rubricem_agent.evals.grading.base import GradedExample, Totals, mean_metrics, mean_of, scores_of
from rubricem_agent.evals.grading.drb_citations import CitationCheck
from rubricem_agent.evals.grading.grade import Case, Grade
from rubricem_agent.evals.grading.prompts import JudgePrompts
from rubricem_agent.evals.grading.question import Grading, Question
from rubricem_agent.evals.modes import Rules
from rubricem_agent.evals.race_reply import DIMENSIONS, parse_scores
from rubricem_agent.evals.reply_json import Unparsed

LEAST_CLEANED = 100
"""Characters; a shorter cleaned article is no article, officially."""
CLEANING_TRIES = 3
FACT_NAMES = ("avg_citations_per_task", "effective_citations", "citation_accuracy")


class DrbGrader:
    """RACE in any mode. FACT needs pages and many calls, and is asked for by name."""

    is_binary = False

    def __init__(
        self,
        rules: Rules,
        prompts: JudgePrompts,
        *,
        references: Mapping[str, str],
        citations: CitationCheck | None = None,
    ) -> None:
        self._rules = rules
        self._prompts = prompts
        self._references = references
        self._citations = citations

    @classmethod
    def for_rules(cls, rules: Rules, *, references: Mapping[str, str], with_fact: bool) -> "DrbGrader":
        names = ("drb_clean", "drb_race", *(("drb_extract", "drb_dedup", "drb_validate") if with_fact else ()))
        prompts = JudgePrompts.read(*names)
        return cls(
            rules, prompts, references=references, citations=CitationCheck(rules, prompts) if with_fact else None
        )

    @property
    def prompt_hash(self) -> str:
        return self._prompts.hash

    def grade(self, case: Case) -> Grading:
        """Clean, compare; then, for FACT, extract, thin out, read the pages, validate."""
        gold = case.gold_as(DrbGold)
        if case.answer.is_empty:
            return self._failed("there is no article")
        ((*_, cleaned),) = yield (self._clean(case, gold),)
        if not is_article(cleaned):
            return self._failed(f"the cleaned article has fewer than {LEAST_CLEANED} characters")
        (replies,) = yield (self._compare(case, gold, cleaned=cleaned),)
        grade = self._race(replies, gold.criteria)
        if self._citations is None:
            return grade
        record = yield from self._citations.check(case, gold.language)
        return grade._replace(record=record)

    def total(self, graded: Sequence[GradedExample]) -> Totals:
        """Plain means of the overall score and the dimensions; FACT is pooled over all tasks."""
        metrics = {"overall_score": mean_of(scores_of(graded)), **mean_metrics(graded)}
        return Totals("overall_score", metrics | _fact(graded))

    def _clean(self, case: Case, gold: DrbGold) -> Question:
        prompt = self._prompts.user("drb_clean", article=case.answer.text, language=gold.language)
        return Question("clean", prompt, tries=CLEANING_TRIES, accepts=is_article)

    def _compare(self, case: Case, gold: DrbGold, *, cleaned: str) -> Question:
        prompt = self._prompts.user(
            "drb_race",
            task=case.example.prompt_text,
            article=cleaned,
            reference=self._references[gold.id],
            criteria=render_criteria(gold.criteria),
        )
        return Question("race", prompt, tries=self._rules.tries, accepts=has_scores)

    def _race(self, replies: tuple[str, ...], criteria: TaskCriteria) -> Grade:
        outcome = judge_task(replies, criteria, max_tries=len(replies)).outcome
        unreadable = len(replies) - has_scores(replies[-1])
        if isinstance(outcome, TaskFailure):
            return self._failed(outcome.error)._replace(unreadable=unreadable)
        labels = {name: f"{value:.2f}" for name, value in outcome.dimensions.items()}
        return Grade(outcome.overall, outcome.overall, metrics=outcome.dimensions, labels=labels, unreadable=unreadable)

    def _failed(self, reason: str) -> Grade:
        return Grade(0.0 if self._rules.is_strict else None, 0.0, reason)


def is_article(cleaned: str) -> bool:
    return len(cleaned.strip()) >= LEAST_CLEANED


def has_scores(reply: str) -> bool:
    return not isinstance(parse_scores(reply), Unparsed)


def render_criteria(criteria: TaskCriteria) -> str:
    """The criteria by dimension, with their explanations and without their weights."""
    lines: list[str] = []
    for dimension in DIMENSIONS:
        lines.append(f"## {dimension}")
        lines += [f"- {item.criterion}\n  {item.explanation}" for item in criteria.criterions.get(dimension, ())]
    return "\n".join(lines)


def _fact(graded: Sequence[GradedExample]) -> dict[str, float | None]:
    records = [one.grade.record for one in graded if one.grade.record]
    if not records:
        return {}
    try:
        score = score_records(records)
    except ScoringError:
        return {f"fact:{name}": None for name in FACT_NAMES}
    return {f"fact:{name}": value for name, value in score._asdict().items()}
