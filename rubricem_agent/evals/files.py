"""Benchmark files on disk: their rows, their hash, and whether they are the files of the published numbers."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from rubricem_agent.data.chatml import ChatTurn
from rubricem_agent.evals.dataset import DataPaths, Dataset, Example, Gold, required
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import validating
from rubricem_records.files.file_hash import sha256 as file_sha256


class FileRow(Frozen):
    """Base of the models of nested rows: columns that are not read are ignored."""

    model_config = ConfigDict(extra="ignore")


RowT = TypeVar("RowT", bound=BaseModel)
GoldT = TypeVar("GoldT", bound=Gold)


class Advice(NamedTuple):
    """What messages say about a kind of file."""

    description: str
    """Completes "give ..."."""
    way_out: str
    """What to do where the file is malformed, as a sentence."""


OFFICIAL_FILE = Advice("a benchmark's official file", "Download the official file, or correct this one.")
ANSWERS_FILE_ADVICE = Advice(
    "your answers with --policy file:ANSWERS.jsonl", 'Write one line for each example: {"id": ..., "answer": ...}.'
)

RowId = Annotated[Text, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]
"""An id that files write as a text or as a number."""


class AnswerRow(FileRow):
    """A line of a file of answers; DeepResearchBench calls its answers articles."""

    id: RowId
    answer: Text = Field(validation_alias=AliasChoices("answer", "article", "response", "prediction"))


class RowPosition(NamedTuple):
    """One row as it was read, and its position for messages."""

    where: str
    content: JsonValue
    advice: Advice = OFFICIAL_FILE


def read_utf8(path: Path, advice: Advice = OFFICIAL_FILE) -> str:
    """The file's text. Raises FileFormatError where it is missing, empty or not UTF-8."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"{path} cannot be read ({cause}); give {advice.description}, as plain UTF-8.") from cause
    if not text.strip():
        raise FileFormatError(f"{path} is empty. {advice.way_out}")
    return text


def json_lines(path: Path, advice: Advice = OFFICIAL_FILE) -> list[RowPosition]:
    """One JSON value per line, blank lines skipped; lines count from 1."""
    lines = enumerate(read_utf8(path, advice).split("\n"), start=1)
    return [_parse(line, f"{path} line {number}", advice=advice) for number, line in lines if line.strip()]


def json_array(path: Path) -> list[RowPosition]:
    """The elements of a JSON array, counted from 0."""
    content = _parse(read_utf8(path), str(path), advice=OFFICIAL_FILE).content
    if not isinstance(content, list) or not content:
        raise FileFormatError(
            f"{path} is not a JSON array with rows in it; this benchmark's official file is one array. Give that file, "
            "not a JSON Lines version of it."
        )
    return [RowPosition(f"{path} element {number}", element) for number, element in enumerate(content)]


def csv_rows(path: Path, *, columns: Sequence[str]) -> list[RowPosition]:
    """The rows of a CSV file with a header, counted from 1 without it."""
    reader = csv.DictReader(io.StringIO(read_utf8(path), newline=""))
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise FileFormatError(
            f"{path} lacks the column {', '.join(missing)}; the official file has {', '.join(columns)} and this one "
            f"{', '.join(reader.fieldnames or ())}. It is another version: download the official file."
        )
    try:
        rows = [RowPosition(f"{path} row {number}", dict(row)) for number, row in enumerate(reader, start=1)]
    except csv.Error as error:
        raise FileFormatError(f"{path} row {reader.line_num} is not CSV ({error}); download the file again.") from error
    if not rows:
        raise FileFormatError(f"{path} has a header and no rows; download the official file again.")
    return rows


def read_row(row: RowPosition, model: type[RowT], **fields: str) -> RowT:
    """The row as its model; `fields` are added to it, such as an id that the file does not have.

    Raises FileFormatError with position, field, rule and value.
    """
    content = {**row.content, **fields} if isinstance(row.content, Mapping) else row.content
    with validating(f"{row.where} is malformed", row.advice.way_out):
        return model.model_validate_json(json.dumps(content))


def read_numbered(rows: Sequence[RowPosition], model: type[RowT]) -> list[RowT]:
    """Rows of a file without ids: the row number from 0 is the id."""
    return [read_row(row, model, id=str(number)) for number, row in enumerate(rows)]


def read_answers(path: Path, advice: Advice = ANSWERS_FILE_ADVICE) -> dict[str, str]:
    """Answers by example id from JSON Lines of id and answer, written by any system. Refuses an id given twice."""
    answers: dict[str, str] = {}
    for line in json_lines(path, advice):
        row = read_row(line, AnswerRow)
        if row.id in answers:
            raise FileFormatError(
                f"{line.where}: the id {row.id!r} already has an answer; a file holds one per example. "
                "Remove one of the two lines."
            )
        answers[row.id] = row.answer
    return answers


def assemble(
    path: Path,
    examples: Sequence[Example],
    *,
    gold: Sequence[Gold],
    any_version: bool = False,
    num_rows: int | None = None,
    sha256: str | None = None,
) -> Dataset:
    """The data with their provenance; `num_rows` and `sha256` are those of the official file, where they are known.

    Raises FileFormatError where an id is given twice; or the file is another version, unless `any_version` accepts it.
    """
    by_id: dict[str, Gold] = {}
    for record in gold:
        if record.id in by_id:
            raise FileFormatError(
                f"{path}: the id {record.id!r} is given twice; ids name examples in logs and must be unique. "
                "Remove one of the two rows."
            )
        by_id[record.id] = record
    actual = file_sha256(path)
    remedy = "Download the official file, or use --any-version to take this one, with its hash in the manifest."
    if not any_version and num_rows not in (None, len(examples)):
        raise FileFormatError(f"{path} has {len(examples)} rows; the official file has {num_rows}. {remedy}")
    if not any_version and sha256 not in (None, actual):
        raise FileFormatError(f"{path} has the sha256 {actual}; the official file has {sha256}. {remedy}")
    return Dataset(tuple(examples), by_id, path, actual)


def rows_loader(
    name: str,
    read: Callable[[Path], list[RowPosition]],
    model: type[GoldT],
    *,
    prompt: Callable[[GoldT], str],
    turns: Callable[[GoldT], tuple[ChatTurn, ...]] = lambda row: (),
    is_numbered: bool = False,
    num_rows: int | None = None,
    sha256: str | None = None,
) -> Callable[..., Dataset]:
    """The `load` of a benchmark with one file, whose rows are the gold and contain the prompt.

    `is_numbered`: rows have no ids, so that the row number from 0 is the id.
    """

    def load(paths: DataPaths, *, any_version: bool = False) -> Dataset:
        path = required(paths.path, f"the benchmark {name}")
        rows = read_numbered(read(path), model) if is_numbered else [read_row(row, model) for row in read(path)]
        examples = [Example(id=row.id, prompt_text=prompt(row), turns=turns(row)) for row in rows]
        return assemble(path, examples, gold=rows, any_version=any_version, num_rows=num_rows, sha256=sha256)

    return load


def _parse(text: str, where: str, *, advice: Advice) -> RowPosition:
    try:
        return RowPosition(where, json.loads(text), advice)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where} is not JSON ({error}). {advice.way_out}") from error


def _listed_answers(value: object) -> object:
    if not isinstance(value, str) or not value.startswith("["):
        return (value,)
    try:
        return tuple(json.loads(value))
    except ValueError as error:
        raise ValueError(f"begins with a bracket and is not a JSON list of texts ({error})") from error


class ShortFormGold(Gold):
    """A row of DR Tulu's short-form files (2Wiki, WebWalker): messages, and one answer or a JSON list of answers."""

    messages: tuple[ChatTurn, ...] = Field(min_length=1)
    answers: Annotated[tuple[Annotated[Text, Field(min_length=1)], ...], BeforeValidator(_listed_answers)] = Field(
        min_length=1, validation_alias="ground_truth"
    )

    def accepted_answers(self) -> tuple[str, ...]:
        return self.answers


def load_short_form(path: Path, *, any_version: bool, num_rows: int) -> Dataset:
    """DR Tulu's file of a short-form benchmark. The agent gets the last message; the row number from 0 is the id."""
    load = rows_loader(
        path.name,
        json_lines,
        ShortFormGold,
        prompt=lambda row: row.messages[-1].content,
        is_numbered=True,
        num_rows=num_rows,
    )
    return load(DataPaths(path), any_version=any_version)
