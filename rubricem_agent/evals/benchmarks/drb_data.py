"""The files of DeepResearchBench: tasks, their weighted criteria, and reference articles."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from rubricem_agent.evals.dataset import DataPaths, Dataset, Example, Gold, required
from rubricem_agent.evals.files import OFFICIAL_FILE, FileRow, RowId, assemble, json_lines, read_answers, read_row
from rubricem_env.domain.base import Text
from rubricem_env.domain.errors import FileFormatError

DIMENSIONS = ("comprehensiveness", "insight", "instruction_following", "readability")


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
