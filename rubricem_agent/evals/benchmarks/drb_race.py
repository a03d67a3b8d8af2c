"""DeepResearchBench RACE: a report against a reference report, criterion by criterion.

Per dimension the judge's scores are averaged with the criteria's weights; the weighted sum of the dimensions is the
total; overall = target / (target + reference). The overall is not the mean of the normalised dimensions.

Reading a RACE judge's reply: the scores per dimension, rescued from damaged JSON in the official order.

The order matters where a reply could be read in two ways: whole text, json fence, whole text of any kind, first
balanced braces, first brace to last, and at the end criteria and scores gathered by pattern.

RACE over many tasks: the plain mean of every row that has no error, and the official result text.

DeepResearchBench files: tasks, their criteria, and articles, each JSON Lines.

Recorded RACE cases.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ConfigDict, Field, JsonValue

from rubricem_agent.evals.base import (
    Benchmark,
    BenchmarkFileError,
    CaseInput,
    Example,
    Gold,
    RecordedInput,
    Replies,
    Unit,
    Unparsed,
    parse_json,
)
from rubricem_agent.evals.files import Expectation, FileRow, RowPosition, assemble, json_lines, read_row
from rubricem_env.domain.base import Frozen, Text

DIMENSIONS = ("comprehensiveness", "insight", "instruction_following", "readability")

_FENCE = "```"
_CRITERION = re.compile(r'"criterion"\s*:\s*"([^"]+)"')
# No sign in front of the digits: a negative score is not seen and the later ones move up, as officially.
_TARGET_SCORE = re.compile(r'"article_1_score"\s*:\s*(\d+\.?\d*)')
_REFERENCE_SCORE = re.compile(r'"article_2_score"\s*:\s*(\d+\.?\d*)')


def parse_scores(reply: str) -> JsonValue | Unparsed:
    """The judge's JSON, of whatever kind, if every dimension is in it; `Unparsed` where the official scorer asks again."""
    found = rescue_json(reply)
    if isinstance(found, Unparsed):
        return found
    if not isinstance(found, dict | list | str):
        return Unparsed("the reply holds no object")
    missing = [dimension for dimension in DIMENSIONS if dimension not in found]
    return Unparsed(f"dimensions missing: {', '.join(missing)}") if missing else found


def rescue_json(text: str) -> JsonValue | Unparsed:
    """The first reading of the text that is JSON."""
    for candidate in _candidates(text):
        parsed = parse_json(candidate)
        if not isinstance(parsed, Unparsed):
            return parsed
    return _gather_by_pattern(text)


def _candidates(text: str) -> Iterator[str]:
    whole = text.strip()
    if whole.startswith("{") and whole.endswith("}"):
        yield whole
    opened = text.find("```json")
    if opened != -1:
        content, closing, _ = text[opened + len("```json") :].partition(_FENCE)
        if closing:
            yield content.strip()
    yield whole
    yield from _braced(text)


def _braced(text: str) -> Iterator[str]:
    first, last = text.find("{"), text.rfind("}")
    if first == -1:
        return
    depth = 0
    for position in range(first, len(text)):
        # Braces inside strings count too, as officially; the next reading makes up for it.
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            yield text[first : position + 1]
            break
    if last > first:
        yield text[first : last + 1]


def _gather_by_pattern(text: str) -> JsonValue | Unparsed:
    if not all(word in text for word in ("comprehensiveness", "article_1_score", "article_2_score")):
        return Unparsed("no JSON in the reply")
    gathered: dict[str, JsonValue] = {
        dimension: _gather_entries(_section(text, dimension)) for dimension in DIMENSIONS if dimension in text
    }
    return gathered if any(gathered.values()) else Unparsed("no scores in the reply")


def _section(text: str, dimension: str) -> str:
    start = _position(text, dimension, after=0, bare_after=0)
    others = (other for other in DIMENSIONS if other != dimension)
    starts = [_position(text, other, after=start, bare_after=start + len(dimension)) for other in others]
    return text[start : min((position for position in starts if position != -1), default=len(text))]


def _position(text: str, dimension: str, *, after: int, bare_after: int) -> int:
    for quoted in (f'"{dimension}"', f"'{dimension}'"):
        position = text.find(quoted, after)
        if position != -1:
            return position
    return text.find(dimension, bare_after)


def _gather_entries(section: str) -> list[JsonValue]:
    criteria = _CRITERION.findall(section)
    targets = _TARGET_SCORE.findall(section)
    references = _REFERENCE_SCORE.findall(section)
    # The shortest of the three lists decides: entries are paired by position.
    return [
        {"criterion": criterion, "article_1_score": float(target), "article_2_score": float(reference)}
        for criterion, target, reference in zip(criteria, targets, references, strict=False)
    ]


MAX_TRIES = 10


class RaceCriterion(Frozen):
    """One criterion of a dimension. The judge sees text and explanation, never the weight."""

    model_config = ConfigDict(extra="ignore")

    criterion: Text
    weight: float
    explanation: Text = ""


class TaskCriteria(Frozen):
    """The criteria of one task: a weight per dimension, and weighted criteria in each."""

    model_config = ConfigDict(extra="ignore")

    id: int | str = "Unknown"
    dimension_weight: dict[str, float] = Field(default_factory=dict)
    criterions: dict[str, tuple[RaceCriterion, ...]] = Field(default_factory=dict)

    def weights_in(self, dimension: str) -> dict[str, float]:
        """Criterion text to weight, in file order; of two equal texts the last weight wins."""
        return {item.criterion: item.weight for item in self.criterions.get(dimension, ())}


class Side(NamedTuple):
    """Weighted average per scored dimension, and their total weighted by the dimensions' weights."""

    dimensions: dict[str, float]
    total: float


class Weighted(NamedTuple):
    """Both reports before normalisation."""

    target: Side
    reference: Side


class TaskScore(NamedTuple):
    """The normalised dimensions and the overall score."""

    dimensions: dict[str, float]
    overall: float
    weighted: Weighted


class TaskFailure(NamedTuple):
    """Why a task has no score. Its row carries the error and leaves the mean; it is not a zero."""

    error: str


class JudgedTask(NamedTuple):
    """The outcome of a task and the number of replies asked for."""

    outcome: TaskScore | TaskFailure
    judge_calls: int


class _Entry(NamedTuple):
    criterion: str
    target: float | None
    reference: float | None


def judge_task(replies: Sequence[str], criteria: TaskCriteria, *, max_tries: int = MAX_TRIES) -> JudgedTask:
    """Score the first readable reply; after `max_tries` unreadable ones the task has no score."""
    judge = Replies(replies)
    while judge.calls < max_tries:
        reply = judge.ask()
        scores = Unparsed("the request failed") if reply is None else parse_scores(reply)
        if not isinstance(scores, Unparsed):
            return JudgedTask(_score_or_failure(scores, criteria), judge.calls)
    return JudgedTask(TaskFailure(f"Failed to get valid response after {max_tries} retries"), judge.calls)


def score_task(scores: Mapping[str, JsonValue], criteria: TaskCriteria) -> TaskScore:
    """The official arithmetic over a judge's object. Scores are not clamped."""
    weighted = weigh(scores, criteria)
    target, reference = weighted
    dimensions = {
        dimension: share_of(target.dimensions[dimension], reference.dimensions[dimension])
        if dimension in target.dimensions
        else 0.0
        for dimension in DIMENSIONS
    }
    return TaskScore(dimensions, share_of(target.total, reference.total), weighted)


def share_of(target: float, reference: float) -> float:
    """The target's share of target + reference; 0 where that sum is not positive."""
    return target / (target + reference) if target + reference > 0 else 0.0


def weigh(scores: Mapping[str, JsonValue], criteria: TaskCriteria) -> Weighted:
    """Averages and totals of both reports, in the order of the judge's object.

    A dimension without a weight or without criteria, and one that is not a list, is passed over.
    """
    targets: dict[str, float] = {}
    references: dict[str, float] = {}
    for dimension, entries in scores.items():
        known = criteria.weights_in(dimension)
        if not isinstance(entries, list) or dimension not in criteria.dimension_weight or not known:
            continue
        targets[dimension], references[dimension] = _averages(entries, known)
    return Weighted(_side(targets, criteria.dimension_weight), _side(references, criteria.dimension_weight))


def weight_of(criterion: str, known: Mapping[str, float]) -> float:
    """The weight of the criterion that the judge names: exact, else without case, else a part of one another.

    The first criterion in file order wins; a text that matches none takes the dimension's mean weight.
    """
    if criterion in known:
        return known[criterion]
    wanted = criterion.lower()
    for text, weight in known.items():
        if text.lower() == wanted:
            return weight
    for text, weight in known.items():
        if wanted in text.lower() or text.lower() in wanted:
            return weight
    return sum(known.values()) / len(known)


def _side(averages: dict[str, float], weights: Mapping[str, float]) -> Side:
    total = 0.0
    for dimension, average in averages.items():
        total += average * weights[dimension]
    return Side(averages, total)


def _averages(entries: Sequence[JsonValue], known: Mapping[str, float]) -> tuple[float, float]:
    target = reference = weight_sum = 0.0
    last_has_reference = False
    for entry in map(_read_entry, entries):
        if entry is None:
            continue
        last_has_reference = entry.reference is not None
        if not entry.criterion or entry.target is None:
            continue
        weight = weight_of(entry.criterion, known)
        target += entry.target * weight
        weight_sum += weight
        if entry.reference is not None:
            reference += entry.reference * weight
    if weight_sum <= 0:
        return 0.0, 0.0
    # The official code looks at the reference score of the last item alone: if that is missing, all count as none.
    return target / weight_sum, reference / weight_sum if last_has_reference else 0.0


def _read_entry(entry: JsonValue) -> _Entry | None:
    """The entry, or None where it is no object or a score in it is not a number: such an entry leaves no trace."""
    if not isinstance(entry, dict):
        return None
    named = entry.get("criterion")
    target = entry.get("article_1_score")
    single = entry.get("target_score")
    try:
        return _Entry(
            named.strip() if isinstance(named, str) else "",
            _number(single if target is None else target),
            _number(entry.get("article_2_score")),
        )
    except ValueError:
        return None


def _number(value: JsonValue) -> float | None:
    """Numbers, booleans and numeric strings are numbers to the official code."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise ValueError(f"{type(value).__name__} is not a score")
    return float(value)


def _score_or_failure(scores: JsonValue, criteria: TaskCriteria) -> TaskScore | TaskFailure:
    if not isinstance(scores, dict):
        kind = "str" if isinstance(scores, str) else "list"
        return TaskFailure(f"Error calculating scores: '{kind}' object has no attribute 'items'")
    if not criteria.criterions:
        missing = f"ID: {criteria.id} - Missing required criterions data, cannot calculate weighted scores"
        return TaskFailure(f"Error calculating scores: {missing}")
    try:
        return score_task(scores, criteria)
    except OverflowError as error:
        return TaskFailure(f"Error calculating scores: {error}")


COLUMNS = (*DIMENSIONS, "overall_score")


class RaceMeans(NamedTuple):
    """Means over the scored rows, 0..1; None where no row was scored. Reported times 100."""

    means: dict[str, float] | None
    n_scored: int

    def result_text(self) -> str | None:
        """The content of the official race_result.txt, which is not written where nothing was scored."""
        if self.means is None:
            return None
        return "".join(f"{column.replace('_', ' ').title()}: {mean:.4f}\n" for column, mean in self.means.items())


def aggregate(rows: Sequence[Mapping[str, JsonValue]]) -> RaceMeans:
    """Rows with an `error` leave the mean; a column that a scored row lacks counts 0 there."""
    scored = [row for row in rows if "error" not in row]
    if not scored:
        return RaceMeans(None, 0)
    means = {column: sum(_value(row, column) for row in scored) / len(scored) for column in COLUMNS}
    return RaceMeans(means, len(scored))


def strict_mean(rows: Sequence[Mapping[str, JsonValue]]) -> float:
    """Strict mode: the overall score with every failed row as 0; 0 for no rows at all."""
    return sum(_value(row, "overall_score") for row in rows if "error" not in row) / len(rows) if rows else 0.0


def _value(row: Mapping[str, JsonValue], column: str) -> float:
    value = row.get(column, 0)
    return float(value) if isinstance(value, int | float) else 0.0


OFFICIAL = Expectation(rows=100)


class DrbGold(Gold):
    """What the RACE judge works with, apart from the reference article."""

    language: Literal["zh", "en"]
    topic: Text
    criteria: TaskCriteria


class _Query(FileRow):
    id: int
    prompt: Text = Field(min_length=1)
    language: Literal["zh", "en"]
    topic: Text = ""


class _Article(FileRow):
    id: int
    prompt: Text
    article: Text


def load(path: Path, *, criteria_path: Path, expect: Expectation = OFFICIAL) -> Benchmark[DrbGold]:
    """Prompts for the agent; criteria in the gold. Refuses a criteria file that lacks a task or one of the dimensions."""
    criteria = _load_criteria(criteria_path)
    queries = [read_row(place, _Query) for place in json_lines(path)]
    missing = [query.id for query in queries if query.id not in criteria]
    if missing:
        raise BenchmarkFileError(
            f"{criteria_path} has no criteria for task {', '.join(map(str, missing))} of {path}; every task needs them "
            "to be scored. Give the criteria file of the same release, or a task file without these tasks."
        )
    examples = [Example(id=str(query.id), prompt_text=query.prompt) for query in queries]
    gold = [
        DrbGold(id=str(query.id), language=query.language, topic=query.topic, criteria=criteria[query.id])
        for query in queries
    ]
    return assemble(path, examples, gold=gold, expect=expect)


def load_articles(path: Path) -> Mapping[str, str]:
    """Articles by task id: raw, cleaned or reference, all of one format. Refuses a task given twice."""
    articles: dict[str, str] = {}
    for place in json_lines(path):
        row = read_row(place, _Article)
        if str(row.id) in articles:
            raise BenchmarkFileError(
                f"{place.where}: task {row.id} already has an article; a file holds one per task. Remove one of the two."
            )
        articles[str(row.id)] = row.article
    return articles


class _Criteria(TaskCriteria):
    id: int


def _load_criteria(path: Path) -> dict[int | str, TaskCriteria]:
    criteria: dict[int | str, TaskCriteria] = {}
    for place in json_lines(path):
        task = _read_criteria(place)
        if task.id in criteria:
            raise BenchmarkFileError(
                f"{place.where}: task {task.id} already has criteria; a file holds one line per task. Remove one of the two."
            )
        criteria[task.id] = task
    return criteria


def _read_criteria(place: RowPosition) -> TaskCriteria:
    task = read_row(place, _Criteria)
    missing = [name for name in DIMENSIONS if not task.criterions.get(name) or name not in task.dimension_weight]
    if missing:
        raise BenchmarkFileError(
            f"{place.where}: task {task.id} has no weighted criteria for {', '.join(missing)}; all four dimensions are "
            "scored. Download the official criteria file."
        )
    return task


class RaceTaskInput(RecordedInput):
    criteria: TaskCriteria
    judge_replies: tuple[Text, ...]
    max_retries: int = MAX_TRIES


class RaceAggregateInput(RecordedInput):
    rows: tuple[dict[str, JsonValue], ...]


def recorded_score_task(case_input: CaseInput) -> object:
    case = RaceTaskInput.read(case_input)
    outcome, calls = judge_task(case.judge_replies, case.criteria, max_tries=case.max_retries)
    row: dict[str, object] = {"id": case.criteria.id}
    if isinstance(outcome, TaskFailure):
        return {"result": row | {"error": outcome.error}, "weighted": None, "judge_calls": calls}
    weighted = {name: _recorded_side(side) for name, side in outcome.weighted._asdict().items()}
    result = row | outcome.dimensions | {"overall_score": outcome.overall}
    return {"result": result, "weighted": weighted, "judge_calls": calls}


def recorded_aggregate(case_input: CaseInput) -> object:
    score = aggregate(RaceAggregateInput.read(case_input).rows)
    return {"means": score.means, "n_scored": score.n_scored, "race_result_txt": score.result_text()}


def _recorded_side(side: Side) -> dict[str, object]:
    averages = {f"{dimension}_weighted_avg": average for dimension, average in side.dimensions.items()}
    return {"dims": averages, "total": side.total}


UNITS = {"task": Unit(recorded_score_task), "aggregate": Unit(recorded_aggregate)}
