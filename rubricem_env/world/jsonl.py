"""Documents and questions as JSONL, written byte for byte the same; questions are read with a message for every bad line.

Documents are read by `rubricem_env.tools.corpus`, as those of any corpus.
"""

import json
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from rubricem_env.world.errors import WorldError
from rubricem_env.world.questions import Question

CORPUS_FILE = "corpus.jsonl"
QUESTIONS_FILE = "questions.jsonl"

Record = TypeVar("Record", bound=BaseModel)


def to_jsonl(records: Iterable[BaseModel]) -> bytes:
    """One record a line, ASCII only, fields in the order of the type."""
    return b"".join(json.dumps(record.model_dump(mode="json")).encode("ascii") + b"\n" for record in records)


def load_questions(path: Path) -> tuple[Question, ...]:
    """The questions of a file, with their truth, in its order."""
    return _load(path, Question)


def shipped_corpus_path() -> Path:
    """The corpus of the default world, which lies within the package."""
    return _shipped(CORPUS_FILE)


def shipped_questions_path() -> Path:
    """The questions of the default world, which lie within the package."""
    return _shipped(QUESTIONS_FILE)


def _shipped(name: str) -> Path:
    return Path(str(files("rubricem_env.world") / "shipped" / name))


def _load(path: Path, kind: type[Record]) -> tuple[Record, ...]:
    try:
        # Not splitlines, which also breaks at U+2028 and others that JSON leaves within a text.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as fault:
        raise WorldError(
            f"{path} cannot be read as UTF-8 text ({fault}). Give the path of a JSONL file, or write one with "
            "python -m rubricem_env.world.almanac --out DIR."
        ) from fault
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    return tuple(_parse(line, kind, where=f"{path} line {number}") for number, line in numbered)


def _parse(line: str, kind: type[Record], *, where: str) -> Record:
    try:
        return kind.model_validate_json(line)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the line"
        raise WorldError(
            f"{where} is not a {kind.__name__}: {place}: {first['msg']}, got {str(first['input'])[:60]!r}. "
            "Correct the line, or write the file again with python -m rubricem_env.world.almanac."
        ) from fault
