"""Reads files of questions: the rows of a data set, the questions of a teacher run, and prepared training questions.

What one row may be is said by `query_in` in `question_rows.py`.
"""

import gzip
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.data.base import TeacherTask
from rubricem_agent.data.question_rows import almanac_question, query_in
from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import most_read_whole, read_lines, validating
from rubricem_env.domain.trajectory import Query
from rubricem_env.world.questions import Question


class SourceRow(NamedTuple):
    """A row of a data set."""

    number: int
    """The row's number from 1: the line of the file, or the index in the array or table."""
    content: object
    problem: str = ""
    """Why the row could not be read; empty where it could."""


MAX_ROW = 100_000_000
"""Bytes of one line of JSON lines."""


def stream_rows(path: Path) -> Iterator[SourceRow]:
    """The rows of a file of JSON lines, blank lines passed over, or of one JSON array where the file is one.

    JSON lines are read one at a time, so their file may be larger than the memory. A file .gz is unpacked on the way.

    Raises:
        FileFormatError: the file cannot be read, or is one JSON value that is no array.
    """
    try:
        name = path.name.casefold()
        with gzip.open(path) if name.endswith(".gz") else path.open("rb") as file:
            if name.removesuffix(".gz").endswith(".json") and file.peek(64).lstrip()[:1] == b"[":
                try:
                    rows = json.loads(_read_up_to(file.read, most_read_whole(), path))
                except (ValueError, RecursionError) as cause:
                    raise FileFormatError(
                        f"{path} begins as a JSON array and is none: {cause}. Was the file cut off?"
                    ) from cause
                yield from (SourceRow(number, row) for number, row in enumerate(rows, start=1))
                return
            lines = iter(partial(_read_up_to, file.readline, MAX_ROW, path), b"")
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    row = SourceRow(number, json.loads(line))
                except (ValueError, RecursionError) as cause:
                    row = SourceRow(number, None, f"not JSON: {cause}")
                yield row
    except (OSError, EOFError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise FileFormatError(
            f"cannot read the data set {path}: {reason}. Give the path of a JSONL file, or hf:OWNER/NAME for one on "
            "the hub."
        ) from cause


def _read_up_to(read: Callable[[int], bytes], most: int, path: Path) -> bytes:
    """What is read in one piece; a packed file may unfold to any size."""
    piece = read(most + 1)
    if len(piece) > most:
        raise FileFormatError(f"{path} has a row or an array of more than {most:,} bytes, unpacked; split it.")
    return piece


_WAY_OUT = "Make it with: rubricem data prepare SOURCE -o FILE"


def read_training_set(path: Path, last: str = Stage.ANSWER) -> tuple[Query, ...]:
    """The questions of a file, in its order; their rubrics judge the last stage, which has the answer.

    Raises:
        FileFormatError: it cannot be read, a line is no `Query` or has no rubrics, or a question stands twice.
    """
    queries: dict[str, Query] = {}
    for where, line in read_lines(path, f"the questions. {_WAY_OUT}"):
        with validating(f"{where} is no training question", _WAY_OUT):
            query = Query.model_validate_json(line)
        if not query.rubrics:
            raise FileFormatError(f"{where}: the question has no persistent rubrics. {_WAY_OUT}")
        if query.key in queries:
            raise FileFormatError(f"{where}: the question stands there already. {_WAY_OUT}")
        judged = tuple(rubric.model_copy(update={"stage": last}) for rubric in query.rubrics)
        queries[query.key] = query.model_copy(update={"rubrics": judged})
    if not queries:
        raise FileFormatError(f"{path} holds no question. {_WAY_OUT}")
    return tuple(queries.values())


class QuestionFile(NamedTuple):
    """The questions of a file."""

    tasks: list[TeacherTask]
    almanac: dict[str, Question]
    """The almanac's questions by id, where the file has them."""


def read_question_file(path: Path) -> QuestionFile:
    """The questions of a file, in its order; of the almanac's only those to train on. See `query_in` for a line.

    Raises:
        FileFormatError: the file cannot be read, a line is no question, an id stands twice, or there is no question.
    """
    tasks: dict[str, TeacherTask] = {}
    almanac: dict[str, Question] = {}
    for where, line in read_lines(path, "a JSONL file of questions"):
        read_id, query, question = _read_line(line, where)
        if question is not None and question.split != "train":
            continue
        name = read_id or where.rpartition(" ")[2]
        if name in tasks:
            raise FileFormatError(f"{where}: the id {name!r} occurs twice; ids are unique.")
        if question is not None:
            almanac[name] = question
        tasks[name] = TeacherTask(name, query)
    if not tasks:
        raise FileFormatError(f"{path} holds no training question; write one JSON object with 'question' on each line.")
    return QuestionFile(list(tasks.values()), almanac)


def _read_line(line: str, where: str) -> tuple[str, Query, Question | None]:
    """The id, which may be empty, the query, and the almanac's question where the line is one."""
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(f"{where} is not JSON: {cause}. Was the file cut off?") from cause
    try:
        query = query_in(fields)
    except FileFormatError as cause:
        raise FileFormatError(f"{where} is not a question: {str(cause).removesuffix('.')}.") from cause
    if "truth" in fields:
        question = almanac_question(fields)
        return question.id, query, question
    read_id = fields.get("id") or ""
    if not isinstance(read_id, str | int):
        raise FileFormatError(f"{where} is not a question: its id is {read_id!r:.60}; it is a text or a number.")
    return str(read_id), query, None
