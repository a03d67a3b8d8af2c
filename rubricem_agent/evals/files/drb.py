"""DeepResearchBench files: tasks, their criteria, and articles, each JSON Lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from rubricem_agent.evals.drb_race import TaskCriteria
from rubricem_agent.evals.errors import BenchmarkFileError
from rubricem_agent.evals.example import Benchmark, Example, Gold
from rubricem_agent.evals.files.source import Expectation, Place, Row, assemble, json_lines, read_row
from rubricem_agent.evals.race_reply import DIMENSIONS
from rubricem_env.domain.base import Text

OFFICIAL = Expectation(rows=100)


class DrbGold(Gold):
    """What the RACE judge works with, apart from the reference article."""

    language: Literal["zh", "en"]
    topic: Text
    criteria: TaskCriteria


class _Query(Row):
    id: int
    prompt: Text = Field(min_length=1)
    language: Literal["zh", "en"]
    topic: Text = ""


class _Article(Row):
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


def _read_criteria(place: Place) -> TaskCriteria:
    task = read_row(place, _Criteria)
    missing = [name for name in DIMENSIONS if not task.criterions.get(name) or name not in task.dimension_weight]
    if missing:
        raise BenchmarkFileError(
            f"{place.where}: task {task.id} has no weighted criteria for {', '.join(missing)}; all four dimensions are "
            "scored. Download the official criteria file."
        )
    return task
