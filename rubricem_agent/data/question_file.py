"""The questions of a generation run, from a JSONL file: the almanac's own, or a question and a format a line."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from rubricem_agent.data.turns import TeacherTask
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.query import AnswerFormat, Query
from rubricem_env.domain.trajectory_json import first_problem
from rubricem_env.env.offline import query_of
from rubricem_env.world.questions import Question

FORMATS = {"exact_answer": "exact", "short_form": "short", "long_form": "long"}
"""The labels of the paper's data set."""


class Asked(Frozen):
    """A line of a file that is not the almanac's."""

    id: Text = ""
    """The line's number where it is empty."""
    question: Text
    answer_format: AnswerFormat = AnswerFormat.LONG


class QuestionFile(NamedTuple):
    """What is to be asked, and the truth of it where the file holds almanac questions."""

    tasks: list[TeacherTask]
    almanac: dict[str, Question]


def read_question_file(path: Path, *, split: str = "train") -> QuestionFile:
    """The questions of a file, in its order; of the almanac's only those of the split.

    Raises:
        FileFormatError: the file cannot be read, a line is no question, an id stands twice, or there is no question.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read the questions {path}: {cause}. Give the path of a JSONL file.") from cause
    tasks: dict[str, TeacherTask] = {}
    almanac: dict[str, Question] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        read = _read_line(line, f"{path}, line {number}")
        if isinstance(read, Question) and read.split != split:
            continue
        name = read.id or str(number)
        if name in tasks:
            raise FileFormatError(f"{path}, line {number}: the id {name!r} occurs twice; ids are unique.")
        if isinstance(read, Question):
            almanac[name] = read
        tasks[name] = TeacherTask(name, _query(read))
    if not tasks:
        raise FileFormatError(f"{path} holds no {split} question; write one JSON object with 'question' on each line.")
    return QuestionFile(list(tasks.values()), almanac)


def _read_line(line: str, where: str) -> Question | Asked:
    try:
        fields: Any = json.loads(line)
        if isinstance(fields, dict) and "truth" in fields:
            return Question.model_validate_json(line)
        if isinstance(fields, dict) and fields.get("answer_format") in FORMATS:
            fields["answer_format"] = FORMATS[fields["answer_format"]]
        # Not strict: JSON has strings for enums.
        return Asked.model_validate(fields, strict=False)
    except ValidationError as cause:
        raise FileFormatError(f"{where} is not a question: {first_problem(cause)}") from cause
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(f"{where} is not JSON: {cause}. Was the file cut off?") from cause


def _query(read: Question | Asked) -> Query:
    if isinstance(read, Question):
        return query_of(read)
    return Query(question=read.question, answer_format=read.answer_format)
