"""A benchmark file on disk: its rows, its hash, and whether it is the one that the published numbers were made on.

The predecessor's short-form sets (2Wiki, WebWalker): JSON Lines of messages and a ground truth.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from rubricem_agent.evals.base import (
    Benchmark,
    BenchmarkFileError,
    ChatTurn,
    Example,
    GoldT,
    ShortAnswerGold,
    SourceFile,
)
from rubricem_env.domain.base import Frozen, Text


class Expectation(NamedTuple):
    """Row count and hash of the official file; None where it is not known."""

    rows: int | None = None
    sha256: str | None = None


UNCHECKED = Expectation()
"""Any rows, any hash: for samples, subsets and files of one's own."""


class FileRow(Frozen):
    """Base of the row models: columns that we do not read are let through."""

    model_config = ConfigDict(extra="ignore")


RowT = TypeVar("RowT", bound=BaseModel)


class Advice(NamedTuple):
    """What a message says of a kind of file."""

    kind: str
    """Such as "a benchmark file"."""
    give: str
    """The way out where there is no such file."""
    mend: str
    """The way out where it is not what it should be, as a sentence."""


OFFICIAL_FILE = Advice(
    "a benchmark file",
    "give the path of the benchmark's official file",
    "Download the official file, or mend this one.",
)


class RowPosition(NamedTuple):
    """One row as it was found, and how to name it in a message."""

    where: str
    content: JsonValue
    advice: Advice = OFFICIAL_FILE


def read_bytes(path: Path, advice: Advice = OFFICIAL_FILE) -> bytes:
    """The file's content. Raises BenchmarkFileError where there is none."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BenchmarkFileError(f"{path} cannot be read ({error.strerror}); {advice.give}.") from error
    if not content.strip():
        raise BenchmarkFileError(f"{path} is empty; {advice.kind} holds at least one row. {advice.mend}")
    return content


def json_lines(path: Path, advice: Advice = OFFICIAL_FILE) -> list[RowPosition]:
    """One JSON value per line, blank lines passed over; lines count from 1."""
    lines = enumerate(_decode(path, advice).split("\n"), start=1)
    return [_parse(line, f"{path} line {number}", advice=advice) for number, line in lines if line.strip()]


def json_array(path: Path) -> list[RowPosition]:
    """The elements of a JSON array, counted from 0."""
    content = _parse(_decode(path), str(path)).content
    if not isinstance(content, list) or not content:
        raise BenchmarkFileError(
            f"{path} is not a JSON array with rows in it but {_kind(content)}; this benchmark's official file is one "
            "array. Give that file, not a JSON Lines version of it."
        )
    return [RowPosition(f"{path} element {number}", element) for number, element in enumerate(content)]


def csv_rows(path: Path, *, columns: Sequence[str]) -> list[RowPosition]:
    """The rows of a CSV file with a header, counted from 1 without it."""
    reader = csv.DictReader(io.StringIO(_decode(path), newline=""))
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise BenchmarkFileError(
            f"{path} lacks the column {', '.join(missing)}; the official file has {', '.join(columns)} and this one "
            f"{', '.join(reader.fieldnames or ())}. It is another version: download the official file."
        )
    rows = [
        RowPosition(f"{path} row {number}", dict(row)) for number, row in enumerate(_csv_content(reader, path), start=1)
    ]
    if not rows:
        raise BenchmarkFileError(f"{path} has a header and no rows; download the official file again.")
    return rows


def read_row(place: RowPosition, model: type[RowT]) -> RowT:
    """The row as its model. Raises BenchmarkFileError that names place, field, rule and value."""
    try:
        return model.model_validate_json(json.dumps(place.content))
    except ValidationError as error:
        raise BenchmarkFileError(_field_message(place, model, error=error)) from error


def assemble(
    path: Path, examples: Sequence[Example], *, gold: Sequence[GoldT], expect: Expectation
) -> Benchmark[GoldT]:
    """The benchmark with its provenance. Refuses a duplicate id, and a file that is not the expected one."""
    by_id: dict[str, GoldT] = {}
    for record in gold:
        if record.id in by_id:
            raise BenchmarkFileError(
                f"{path}: the id {record.id!r} is given twice; ids name examples in logs and must be unique. "
                "Remove one of the two rows."
            )
        by_id[record.id] = record
    source = SourceFile(path, hashlib.sha256(read_bytes(path)).hexdigest(), len(examples))
    _check(source, expect)
    return Benchmark(tuple(examples), by_id, source)


def _check(source: SourceFile, expect: Expectation) -> None:
    remedy = "Download the official file, or use --any-version to take this one, with its hash in the manifest."
    if expect.rows not in (None, source.rows):
        raise BenchmarkFileError(f"{source.path} has {source.rows} rows; the official file has {expect.rows}. {remedy}")
    if expect.sha256 not in (None, source.sha256):
        raise BenchmarkFileError(
            f"{source.path} has the sha256 {source.sha256}; the official file has {expect.sha256}. {remedy}"
        )


def _decode(path: Path, advice: Advice = OFFICIAL_FILE) -> str:
    try:
        return read_bytes(path, advice).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BenchmarkFileError(
            f"{path} is not UTF-8 text (byte {error.start}); {advice.kind} is. If it is compressed, unpack it first."
        ) from error


def _parse(text: str, where: str, *, advice: Advice = OFFICIAL_FILE) -> RowPosition:
    try:
        return RowPosition(where, json.loads(text), advice)
    except (ValueError, RecursionError) as error:
        raise BenchmarkFileError(f"{where} is not JSON ({error}); {advice.kind} holds JSON. {advice.mend}") from error


def _csv_content(reader: "csv.DictReader[str]", path: Path) -> Iterator[dict[str, str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise BenchmarkFileError(
            f"{path} row {reader.line_num} is not CSV ({error}); download the file again."
        ) from error


def _field_message(place: RowPosition, model: type[BaseModel], *, error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "the row"
    needed = ", ".join(info.alias or name for name, info in model.model_fields.items() if info.is_required())
    if first["type"] == "missing":
        found = ", ".join(place.content) if isinstance(place.content, dict) else _kind(place.content)
        return (
            f"{place.where}: the field {field} is missing; a row needs {needed} and this one has {found}. "
            f"{place.advice.mend}"
        )
    value = repr(first["input"])[:80]
    return f"{place.where}: the field {field} is {value}: {first['msg']}; a row needs {needed}. {place.advice.mend}"


def _kind(value: JsonValue) -> str:
    names = {"dict": "an object", "list": "an empty array", "str": "a text", "NoneType": "null"}
    return names.get(type(value).__name__, "a number")


TWOWIKI = Expectation(rows=1000)
WEBWALKER = Expectation(rows=680)


class ShortFormGold(ShortAnswerGold):
    """Every answer that counts as right."""

    answers: tuple[Text, ...] = Field(min_length=1)

    def accepted_answers(self) -> tuple[str, ...]:
        return self.answers


class _Row(FileRow):
    messages: tuple[ChatTurn, ...] = Field(min_length=1)
    ground_truth: Text = Field(min_length=1)


class _Answers(FileRow):
    answers: tuple[Text, ...] = Field(min_length=1)


def load(path: Path, *, expect: Expectation = TWOWIKI) -> Benchmark[ShortFormGold]:
    """The last message for the agent; the answers in the gold. The row number from 0 is the id."""
    places = json_lines(path)
    rows = [read_row(place, _Row) for place in places]
    examples = [Example(id=str(number), prompt_text=row.messages[-1].content) for number, row in enumerate(rows)]
    gold = [
        ShortFormGold(id=str(number), answers=_answers(place, row.ground_truth))
        for number, (place, row) in enumerate(zip(places, rows, strict=True))
    ]
    return assemble(path, examples, gold=gold, expect=expect)


def _answers(place: RowPosition, ground_truth: str) -> tuple[str, ...]:
    """One answer, or several where the text is a JSON list, which it is when it begins with a bracket."""
    if not ground_truth.startswith("["):
        return (ground_truth,)
    try:
        answers = json.loads(ground_truth)
    except ValueError as error:
        raise BenchmarkFileError(
            f"{place.where}: the field ground_truth begins with a bracket and is not a JSON list ({error}); "
            "several answers are written as one. Mend the row."
        ) from error
    return read_row(RowPosition(place.where, {"answers": answers}), _Answers).answers
