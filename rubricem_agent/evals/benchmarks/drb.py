"""DeepResearchBench: RACE, a report against a reference report criterion by criterion, and FACT beside it on request.

Per dimension the judge's scores are averaged with the criteria's weights; the weighted sum of the dimensions is the
total; overall = target / (target + reference). The overall is not the mean of the normalised dimensions.

A judge's damaged JSON is rescued in the official order, which matters where a reply could be read in two ways: whole
text, json fence, whole text of any kind, first balanced braces, first brace to last, and at the end criteria and
scores gathered by pattern. Files are JSON Lines: tasks, their criteria, and articles.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, JsonValue

from rubricem_agent.evals import grading
from rubricem_agent.evals.benchmark import Benchmark
from rubricem_agent.evals.benchmarks import drb_fact
from rubricem_agent.evals.dataset import DataPaths, Dataset, Example, Gold, required
from rubricem_agent.evals.files import OFFICIAL_FILE, FileRow, RowId, assemble, json_lines, read_answers, read_row
from rubricem_agent.evals.reply_parsing import Unparsed, parse_json
from rubricem_agent.evals.rules import GEMINI_PRO, Rules, drtulu_rules, official_rules
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import AnswerFormat

DIMENSIONS = ("comprehensiveness", "insight", "instruction_following", "readability")
LEAST_CLEANED = 100
"""Characters; a shorter cleaned article officially counts as no article."""
CLEANING_TRIES = 3
RACE_PROMPTS = ("drb_clean", "drb_race")
FACT_PROMPTS = (*RACE_PROMPTS, "drb_extract", "drb_dedup", "drb_validate")

_FENCED = re.compile(r"```json(.*?)```", re.DOTALL)
_CRITERION = re.compile(r'"criterion"\s*:\s*"([^"]+)"')
# No sign in front of the digits: a negative score is not seen and the later ones move up, as officially.
_TARGET_SCORE = re.compile(r'"article_1_score"\s*:\s*(\d+\.?\d*)')
_REFERENCE_SCORE = re.compile(r'"article_2_score"\s*:\s*(\d+\.?\d*)')


class RaceCriterion(FileRow):
    """One criterion of a dimension. The judge sees text and explanation, never the weight."""

    criterion: Text
    weight: float
    explanation: Text = ""


class TaskCriteria(FileRow):
    """The criteria of one task: a weight per dimension, and weighted criteria in each."""

    id: int | str = "Unknown"
    dimension_weight: dict[str, float] = Field(default_factory=dict)
    criterions: dict[str, tuple[RaceCriterion, ...]] | None = None

    def of(self, dimension: str) -> tuple[RaceCriterion, ...]:
        """The criteria of a dimension; none where the task has none."""
        return (self.criterions or {}).get(dimension, ())

    def for_judge(self) -> str:
        """The criteria by dimension, with their explanations and without their weights."""
        lines: list[str] = []
        for dimension in DIMENSIONS:
            lines.append(f"## {dimension}")
            lines += [f"- {item.criterion}\n  {item.explanation}" for item in self.of(dimension)]
        return "\n".join(lines)

    def as_json(self) -> str:
        """The same in the official form; an item without an explanation is left out."""
        shown = {
            dimension: [
                {"criterion": item.criterion, "explanation": item.explanation}
                for item in items
                if "explanation" in item.model_fields_set
            ]
            for dimension, items in (self.criterions or {}).items()
        }
        return json.dumps(shown, ensure_ascii=False, indent=2)


class DrbGold(Gold):
    """A row of the task file, with the criteria of its task and the article that the report is compared with."""

    id: RowId
    prompt: Text = Field(min_length=1)
    language: Literal["zh", "en"]
    criteria: TaskCriteria = TaskCriteria()
    reference: Text = ""

    def lacks(self) -> str:
        """A task that is not run needs neither criteria nor a reference."""
        if not self.criteria.criterions:
            return "criteria in the file of --criteria"
        return "" if self.reference else "reference article in the file of --references"


def load(paths: DataPaths, *, any_version: bool = False) -> Dataset:
    """Prompts for the agent; criteria and reference articles in the gold.

    Raises FileFormatError where the criteria of a task lack a dimension.
    """
    path = required(paths.path, "the benchmark drb")
    criteria_path = required(paths.criteria, "DeepResearchBench", option="--criteria FILE")
    what = "RACE, which compares with a reference article,"
    references_path = required(paths.references, what, option="--references FILE")
    tasks = [read_row(line, DrbGold) for line in json_lines(path)]
    criteria = load_criteria(criteria_path)
    references = read_answers(references_path, OFFICIAL_FILE)
    gold = [
        task.model_copy(
            update={"criteria": criteria.get(task.id, TaskCriteria()), "reference": references.get(task.id, "")}
        )
        for task in tasks
    ]
    examples = [Example(id=task.id, prompt_text=task.prompt) for task in tasks]
    return assemble(path, examples, gold=gold, any_version=any_version, num_rows=100)


def load_criteria(path: Path) -> Mapping[str, TaskCriteria]:
    """Criteria by task id. Refuses a task given twice, and one without weighted criteria in every dimension."""
    criteria: dict[str, TaskCriteria] = {}
    for line in json_lines(path):
        task = read_row(line, TaskCriteria)
        if not isinstance(task.id, int):
            raise FileFormatError(f"{line.where}: the field id is missing or no number; each task has its number.")
        missing = [name for name in DIMENSIONS if not task.of(name) or name not in task.dimension_weight]
        if missing:
            raise FileFormatError(
                f"{line.where}: task {task.id} has no weighted criteria for {', '.join(missing)}; all four dimensions "
                "are scored. Download the official criteria file."
            )
        if str(task.id) in criteria:
            raise FileFormatError(
                f"{line.where}: task {task.id} already has criteria; a file holds one line per task. Remove one of the "
                "two."
            )
        criteria[str(task.id)] = task
    return criteria


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
    yield from (content.strip() for content in _FENCED.findall(text)[:1])
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


Side = tuple[dict[str, float], float]
"""Of one report: the weighted average per scored dimension, and their total weighted by the dimensions' weights."""


class TaskScore(NamedTuple):
    """The normalised dimensions, the overall score, and both reports before normalisation."""

    dimensions: dict[str, float]
    overall: float
    target: Side
    reference: Side


def score_or_error(scores: JsonValue | Unparsed, criteria: TaskCriteria, *, tries: int) -> TaskScore | str:
    """The score, or why the task has none: it then leaves the mean, and is not a zero."""
    if isinstance(scores, Unparsed):
        return f"Failed to get valid response after {tries} retries"
    if not criteria.criterions:
        missing = f"ID: {criteria.id} - Missing required criterions data, cannot calculate weighted scores"
        return f"Error calculating scores: {missing}"
    if not isinstance(scores, dict):
        kind = "str" if isinstance(scores, str) else "list"
        return f"Error calculating scores: '{kind}' object has no attribute 'items'"
    try:
        return score_task(scores, criteria)
    except OverflowError as error:
        return f"Error calculating scores: {error}"


def score_task(scores: Mapping[str, JsonValue], criteria: TaskCriteria) -> TaskScore:
    """The official arithmetic over a judge's object. Scores are not clamped.

    A dimension without a weight or without criteria, and one that is not a list, is skipped and reads 0.
    """
    targets: dict[str, float] = {}
    references: dict[str, float] = {}
    for dimension, entries in scores.items():
        # In file order; of two equal texts the last weight wins.
        known = {item.criterion: item.weight for item in criteria.of(dimension)}
        if isinstance(entries, list) and dimension in criteria.dimension_weight and known:
            targets[dimension], references[dimension] = _averages(entries, known)
    target, reference = (_weighted_total(side, criteria.dimension_weight) for side in (targets, references))
    dimensions = {
        dimension: share_of(targets[dimension], references[dimension]) if dimension in targets else 0.0
        for dimension in DIMENSIONS
    }
    return TaskScore(dimensions, share_of(target, reference), (targets, target), (references, reference))


def share_of(target: float, reference: float) -> float:
    """The target's share of target + reference; 0 where that sum is not positive."""
    return target / (target + reference) if target + reference > 0 else 0.0


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


def _weighted_total(averages: Mapping[str, float], weights: Mapping[str, float]) -> float:
    total = 0.0
    # Added in order: `sum` compensates rounding, which the official loop does not.
    for dimension, average in averages.items():
        total += average * weights[dimension]
    return total


def _averages(entries: Sequence[JsonValue], known: Mapping[str, float]) -> tuple[float, float]:
    target = reference = weight_sum = 0.0
    last_has_reference = False
    for entry in map(_read_entry, entries):
        if entry is None:
            continue
        criterion, target_score, reference_score = entry
        last_has_reference = reference_score is not None
        if not criterion or target_score is None:
            continue
        weight = weight_of(criterion, known)
        target += target_score * weight
        weight_sum += weight
        if reference_score is not None:
            reference += reference_score * weight
    if weight_sum <= 0:
        return 0.0, 0.0
    # The official code looks at the reference score of the last item alone: if that is missing, all count as none.
    return target / weight_sum, reference / weight_sum if last_has_reference else 0.0


def _read_entry(entry: JsonValue) -> tuple[str, float | None, float | None] | None:
    """Criterion and both scores; None where the entry is no object or a score is not a number: it is then ignored."""
    if not isinstance(entry, dict):
        return None
    named = entry.get("criterion")
    target = entry.get("article_1_score")
    target = entry.get("target_score") if target is None else target
    try:
        scores = (_number(target), _number(entry.get("article_2_score")))
    except ValueError:
        return None
    return (named.strip() if isinstance(named, str) else "", *scores)


def _number(value: JsonValue) -> float | None:
    """Numbers, booleans and numeric strings are numbers to the official code."""
    if value is None:
        return None
    if isinstance(value, dict | list):
        raise ValueError(f"{type(value).__name__} is not a score")
    return float(value)


def parse_article(reply: str) -> str | Unparsed:
    is_long = len(reply.strip()) >= LEAST_CLEANED
    return reply if is_long else Unparsed(f"the cleaned article has fewer than {LEAST_CLEANED} characters")


def grade(case: grading.Case, grader: grading.Grader) -> grading.Grading:
    """Clean the article, compare it with the reference; then FACT, where the grader has its prompts."""
    gold = case.gold_as(DrbGold)
    if case.answer.is_empty:
        return grader.excluded("there is no article")
    language = gold.language
    text, tries = case.answer.text, CLEANING_TRIES
    asked = grader.question(
        "clean", "drb_clean", parse=parse_article, tries=tries, variant=language, article=text, language=language
    )
    (cleaned,), unreadable = yield from grading.ask([asked])
    if isinstance(cleaned, Unparsed):
        return grader.excluded(cleaned.reason, unreadable=unreadable)
    asked = grader.question(
        "race",
        "drb_race",
        parse=parse_scores,
        variant=language,
        official={"criteria": gold.criteria.as_json()},
        task=case.example.prompt_text,
        article=cleaned,
        reference=gold.reference,
        criteria=gold.criteria.for_judge(),
    )
    (scores,), unreadable = yield from grading.ask([asked])
    outcome = score_or_error(scores, gold.criteria, tries=unreadable)
    if isinstance(outcome, str):
        result = grader.excluded(outcome, unreadable=unreadable)
    else:
        # Two judges agree on who wins, hardly ever on a score of two decimals.
        labels = {name: "wins" if value > 0.5 else "loses" for name, value in outcome.dimensions.items()}
        score = outcome.overall
        result = grading.Grade(score, score, metrics=outcome.dimensions, labels=labels, unreadable=unreadable)
    if grader.prompts != FACT_PROMPTS:
        return result
    record, failed = yield from drb_fact.check_citations(case, grader, language=language)
    return result._replace(record=record, unreadable=result.unreadable + failed)


def total(grades: Sequence[grading.Grade], rules: Rules) -> grading.Totals:
    """Plain means of the overall score and the dimensions; FACT is pooled over all tasks."""
    return {"overall_score": grading.mean_score(grades), **grading.mean_metrics(grades), **drb_fact.fact_totals(grades)}


OFFICIAL = official_rules(GEMINI_PRO, tries=10, max_output_tokens=32_768, citations="numbered")
BENCHMARK = Benchmark(
    name="drb",
    title="DRB",
    answer_format=AnswerFormat.LONG,
    load=load,
    grader=lambda rules: grading.Grader(rules, grade, "overall_score", total, prompts=RACE_PROMPTS),
    fact_grader=lambda rules: grading.Grader(rules, grade, "overall_score", total, prompts=FACT_PROMPTS),
    official=OFFICIAL,
    # The official scorer unchanged, after cite tags became numbers.
    drtulu=drtulu_rules(OFFICIAL, citations="numbered", answer_format=AnswerFormat.SHORT),
    is_long=True,
    hub="github.com/Ayanami0730/deep_research_bench: query.jsonl, criteria.jsonl, reference.jsonl",
    guidance="Write the report in the language of the task.",
    ids="id of the data file",
)
