"""The truth about an attempt at a question over tables: true criteria for each of three stages, and true quality.

An attempt is given as texts by the name of a stage, so that it does not matter who wrote or parsed them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal, NamedTuple

from rubricem_env.domain.scale import FULL_SCORE, PARTIAL_SCORE
from rubricem_env.judge.rules.key_terms import plain_text
from rubricem_env.world.needs import mentions
from rubricem_env.world.tables.questions import OUTDATED, TableMistake, TableQuestion

FRAME = "frame"
ANALYSE = "analyse"
REPORT = "report"
ANALYSIS_STAGES = (FRAME, ANALYSE, REPORT)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)", re.IGNORECASE)
# The head of a result, which the tool writes: the tables that were read. Then how many rows, the columns, the rows.
_RESULT = re.compile(r'<snippet id="([^"]+)">run_sql on ([^\n]*)\n[^\n]*\n(.*?)</snippet>', re.DOTALL)
_CITED = re.compile(r'<cite id="([^"]*)">(.*?)</cite>', re.DOTALL)
_DENIED = re.compile(r"\b(?:not|never|without|avoid|instead of|unlike)\s+(?:the\s+)?(?:table\s+)?(\w+)", re.IGNORECASE)


class QueryResult(NamedTuple):
    """A result that the tool showed."""

    tables: frozenset[str]
    """The tables that the query read, as the tool says."""
    rows: str

    def holds(self, value: str) -> bool:
        """Whether one of its rows has the number."""
        return states_number(self.rows, value)


class AnalysisEvidence(NamedTuple):
    """What an attempt shows, to be compared with the truth."""

    stages: Mapping[str, str]
    """The policy's text of each stage that happened, without tags."""
    results: Mapping[str, QueryResult]
    """By the id of the snippet, in their order."""
    cited: Mapping[str, str]
    """The words that the report cites each id for."""
    repeated_calls: int

    @classmethod
    def of(
        cls, stages: Mapping[str, str], *, observations: Iterable[str], calls: Iterable[object]
    ) -> "AnalysisEvidence":
        """`stages` are texts with their tags; `observations` are the texts of the tool, `calls` identify the calls."""
        results = {
            name: QueryResult(frozenset(tables.split(", ")), rows)
            for text in observations
            for name, tables, rows in _RESULT.findall(text)
        }
        cited: dict[str, str] = {}
        for names, words in _CITED.findall(stages.get(REPORT, "")):
            for name in names.split(","):
                cited[name.strip()] = f"{cited.get(name.strip(), '')} {plain_text(words)}"
        times = Counter(calls)
        return cls(
            MappingProxyType({name: plain_text(text) for name, text in stages.items()}),
            MappingProxyType(results),
            MappingProxyType(cited),
            sum(times.values()) - len(times),
        )

    def text(self, stage: str) -> str:
        return self.stages.get(stage, "")


def states_number(text: str, value: str) -> bool:
    """Whether the text has the number, however it is written: 1,200.50 is 1200.5, and 12 is not in 1200."""
    wanted = float(value)
    return any(abs(float(found.replace(",", "")) - wanted) < 1e-9 * max(1, abs(wanted)) for found in numbers_in(text))


def numbers_in(text: str) -> list[str]:
    """The numbers of a text, as written."""
    return _NUMBER.findall(text)


class AnalysisCriterion(NamedTuple):
    """What is good, or bad, in one stage, with the score that an attempt truly deserves by it."""

    stage: str
    title: str
    description: str
    polarity: Literal["positive", "negative"]
    true_score: "partial[int]"
    """Of an `AnalysisEvidence`: from 0 to `FULL_SCORE`."""


def analysis_criteria(question: TableQuestion) -> tuple[AnalysisCriterion, ...]:
    """Every criterion of the question, in the order of the stages."""
    return (*_frame(question), *_analyse(question), *_report(question))


def _frame(question: TableQuestion) -> Iterator[AnalysisCriterion]:
    for table in question.tables:
        yield _good(FRAME, "names a table", f"The frame names the table {table}.", partial(_names, table))
    for value in question.filters:
        yield _good(FRAME, "names a filter", f"The frame filters for {value}.", partial(_names, value))
    if question.unit:
        said = f"The frame says that the number is wanted in {question.unit}."
        yield _good(FRAME, "names the unit", said, partial(_names, question.unit))
    said = f"The frame uses an outdated or doubled table: {', '.join(OUTDATED)}."
    yield _bad(FRAME, "uses an outdated table", said, partial(_frames_outdated))


def _analyse(question: TableQuestion) -> Iterator[AnalysisCriterion]:
    tables = ", ".join(question.tables)
    said = f"A query reads exactly these tables: {tables}."
    yield _good(ANALYSE, "reads the right tables", said, partial(_read, frozenset(question.tables)))
    said = f"A query over these tables results in {question.value}."
    yield _good(ANALYSE, "finds the number", said, partial(_found, frozenset(question.tables), question.value))
    said = f"The last query results in a wrong number: {_listed(question)}."
    yield _bad(ANALYSE, "ends with a wrong number", said, partial(_ended_wrong, question.mistakes))
    yield _bad(ANALYSE, "repeats a query", "The same query is run again.", partial(_repeated))


def _report(question: TableQuestion) -> Iterator[AnalysisCriterion]:
    unit = f" {question.unit}" if question.unit else ""
    said = f"The report states {question.value}{unit}."
    yield _good(REPORT, "states the number", said, partial(_stated, question.value, question.unit))
    yield _good(
        REPORT,
        "cites the result",
        f"The report cites a result that has {question.value}.",
        partial(_cited_result, question.value),
    )
    said = f"The report states a wrong number: {_listed(question)}."
    yield _bad(REPORT, "states a wrong number", said, partial(_stated_wrong, question.mistakes))


def _listed(question: TableQuestion) -> str:
    """The wrong numbers, each with the mistake that gives it."""
    return ", ".join(f"{mistake.value} ({mistake.kind.replace('_', ' ')})" for mistake in question.mistakes)


def _names(value: str, seen: AnalysisEvidence) -> int:
    return FULL_SCORE * mentions(seen.text(FRAME), value)


def _frames_outdated(seen: AnalysisEvidence) -> int:
    """A table that the frame only warns of is not used."""
    text = _DENIED.sub(lambda match: "" if match[1].lower() in OUTDATED else match[0], seen.text(FRAME))
    return FULL_SCORE * any(mentions(text, table) for table in OUTDATED)


def _read(tables: frozenset[str], seen: AnalysisEvidence) -> int:
    """The full score for these tables and no other, the partial score for one of them."""
    if any(result.tables == tables for result in seen.results.values()):
        return FULL_SCORE
    return PARTIAL_SCORE if any(result.tables & tables for result in seen.results.values()) else 0


def _found(tables: frozenset[str], value: str, seen: AnalysisEvidence) -> int:
    """A number that no table was read for, such as that of `SELECT 42`, is not found."""
    holding = [result for result in seen.results.values() if result.holds(value)]
    if any(result.tables == tables for result in holding):
        return FULL_SCORE
    return PARTIAL_SCORE if any(result.tables & tables for result in holding) else 0


def _ended_wrong(mistakes: tuple[TableMistake, ...], seen: AnalysisEvidence) -> int:
    last = list(seen.results.values())[-1:]
    return FULL_SCORE * any(result.holds(mistake.value) for result in last for mistake in mistakes)


def _repeated(seen: AnalysisEvidence) -> int:
    return min(FULL_SCORE, seen.repeated_calls)


def _stated(value: str, unit: str, seen: AnalysisEvidence) -> int:
    """The full score for the number with its unit, the partial score for the number alone."""
    text = seen.text(REPORT)
    if not states_number(text, value):
        return 0
    return FULL_SCORE if not unit or mentions(text, unit) else PARTIAL_SCORE


def _cited_result(value: str, seen: AnalysisEvidence) -> int:
    """The full score where the citation holds the number; the partial score for citing any other result."""
    known = [name for name in seen.cited if name in seen.results]
    if any(seen.results[name].holds(value) and states_number(seen.cited[name], value) for name in known):
        return FULL_SCORE
    return PARTIAL_SCORE * bool(known)


def _stated_wrong(mistakes: tuple[TableMistake, ...], seen: AnalysisEvidence) -> int:
    return FULL_SCORE * any(states_number(seen.text(REPORT), mistake.value) for mistake in mistakes)


def _good(stage: str, title: str, description: str, true_score: "partial[int]") -> AnalysisCriterion:
    return AnalysisCriterion(stage, title, description, "positive", true_score)


def _bad(stage: str, title: str, description: str, true_score: "partial[int]") -> AnalysisCriterion:
    return AnalysisCriterion(stage, title, description, "negative", true_score)


def analysis_quality(question: TableQuestion, seen: AnalysisEvidence) -> dict[str, float]:
    """The share of the true criteria that each stage fulfils, from 0 to 1; 0 for a stage that never happened.

    A fault counts as a criterion that its absence fulfils, as in every judgement.
    """
    shares: dict[str, list[float]] = {stage: [] for stage in ANALYSIS_STAGES}
    for criterion in analysis_criteria(question):
        score = criterion.true_score(seen) / FULL_SCORE
        shares[criterion.stage].append(score if criterion.polarity == "positive" else 1 - score)
    return {stage: sum(scores) / len(scores) if seen.text(stage).strip() else 0.0 for stage, scores in shares.items()}
