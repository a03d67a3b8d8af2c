"""Training questions with persistent rubrics, prepared from the rows of a data set: one `Query` a line.

Rows may be DR Tulu's RL rows, the almanac's questions, or any rows with a question and rubrics. Repeated, overlong and
evaluation questions are skipped with a count.
"""

import gzip
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from rubricem_env.domain.base import Frozen, Stage
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import first_problem, read_lines, validating
from rubricem_env.domain.judgement import Polarity, Rubric
from rubricem_env.domain.trajectory import AnswerFormat, Query
from rubricem_env.judge.rubric_files import read_rubrics
from rubricem_env.tools.render import estimate_tokens
from rubricem_env.world.offline import query_of
from rubricem_env.world.questions import Question
from rubricem_records.atomic_files import write_atomic, writing

SourceRow = tuple[int, object, str]
"""A row's number from 1 (the line of the file, or the index in the array or table), its content, and why it could not be
read; the last is empty for a row that could."""


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
                    rows = json.loads(file.read())
                except (ValueError, RecursionError) as cause:
                    told = f"{path} begins as a JSON array and is none: {cause}. Was the file cut off?"
                    raise FileFormatError(told) from cause
                yield from ((number, row, "") for number, row in enumerate(rows, start=1))
                return
            for number, line in enumerate(file, start=1):
                try:
                    row = (number, json.loads(line), "") if line.strip() else None
                except (ValueError, RecursionError) as cause:
                    row = (number, None, f"not JSON: {cause}")
                if row is not None:
                    yield row
    except (OSError, EOFError) as cause:
        raise FileFormatError(
            f"cannot read the data set {path}: {getattr(cause, 'strerror', None) or cause}. Give the path of a JSONL file, or "
            "hf:OWNER/NAME for one on the hub."
        ) from cause


FORMATS = {"exact_answer": "exact", "short_form": "short", "long_form": "long"}
"""The labels of the paper's data set."""
QUESTION_NAMES = ("question", "query", "prompt", "problem")
RUBRIC_NAMES = ("rubrics", "rubric")


def query_in(row: object) -> Query:
    """The question of a row with its persistent rubrics, or without any where the row has none.

    A row is {"question", "rubrics": [{"title", "description", "weight"}], "answer_format", "source"}, of which the
    question alone is needed; or one of `rl-research/dr-tulu-rl-data`, whose `ground_truth` is JSON in a text; or one of
    `rl-research/dr-tulu-sft-data`, with `messages` and `question_type`; or a question of the almanac. Other fields are
    passed over. A negative weight makes a flaw, a weight of zero drops the rubric (choice B2).

    Raises:
        FileFormatError: the row is none of these.
    """
    if not isinstance(row, Mapping):
        raise FileFormatError(f"it is a JSON {type(row).__name__}; a row is an object with a question and rubrics")
    if "truth" in row:
        return query_of(almanac_question(row))
    fields = {**row, **_ground_truth(row.get("ground_truth"))}
    question = question_in(fields)
    if not question:
        raise FileFormatError(f"it names no question; a row has one of {', '.join(QUESTION_NAMES)}, or messages")
    try:
        return Query(
            question=question,
            answer_format=_answer_format(fields),
            rubrics=_persistent_rubrics(fields),
            source=source if isinstance(source := fields.get("source"), str) else "",
        )
    except ValidationError as cause:
        raise FileFormatError(first_problem(cause).removesuffix(".")) from cause


def question_in(row: Mapping[str, object]) -> str:
    """The text that a row asks: by its usual names, or the last message of a user; empty where there is none."""
    for name in QUESTION_NAMES:
        text = row.get(name)
        if isinstance(text, str) and text.strip():
            return text.strip()
    messages = row.get("messages")
    asked = [
        message["content"]
        for message in (messages if isinstance(messages, list) else [])
        if isinstance(message, dict) and message.get("role") == "user" and isinstance(message.get("content"), str)
    ]
    return asked[-1].strip() if asked else ""


def almanac_question(row: Mapping[str, object]) -> Question:
    """The almanac's question that a row with a `truth` is; raises FileFormatError where it is none."""
    try:
        return Question.model_validate_json(json.dumps(row))
    except ValidationError as cause:
        raise FileFormatError(f"it has a truth and is no question of the almanac: {first_problem(cause)}") from cause


def _ground_truth(found: object) -> Mapping[str, object]:
    """The content of one of DR Tulu's fields: a text, or a list of one text; None if it is empty."""
    text = found[0] if isinstance(found, list) and found else found
    if text is None or isinstance(text, Mapping):
        return text or {}
    if not isinstance(text, str):
        raise FileFormatError(f"its ground_truth is a JSON {type(text).__name__}; it is an object, as text")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(f"its ground_truth is not JSON: {cause}") from cause
    if not isinstance(fields, dict):
        raise FileFormatError(f"its ground_truth holds a JSON {type(fields).__name__}; it holds an object")
    return fields


def _answer_format(row: Mapping[str, object]) -> AnswerFormat:
    """DR Tulu calls it question_type; the default is a long report."""
    name = row.get("answer_format", row.get("question_type", AnswerFormat.LONG.value))
    known = FORMATS.get(name, name) if isinstance(name, str) else name
    if known not in list(AnswerFormat):
        names = ", ".join([*AnswerFormat, *FORMATS])
        raise FileFormatError(f"its answer format is {name!r:.40}; it is one of {names}")
    return AnswerFormat(str(known))


def _persistent_rubrics(row: Mapping[str, object]) -> tuple[Rubric, ...]:
    given = next((row[name] for name in RUBRIC_NAMES if row.get(name)), [])
    if not isinstance(given, list):
        raise FileFormatError(f"its rubrics are a JSON {type(given).__name__}; they are a list")
    if not given:
        return ()
    rubrics = read_rubrics(json.dumps(given), "its list of rubrics")
    if any(rubric.stage is not Stage.ANSWER for rubric in rubrics):
        raise FileFormatError("one of its rubrics judges another stage; those of a data set judge the answer")
    return tuple(rubric.model_copy(update={"persistent": True}) for rubric in rubrics)


_WAY_OUT = "Make it with: rubricem data prepare SOURCE -o FILE"


def read_training_set(path: Path) -> tuple[Query, ...]:
    """The questions of a file, in its order.

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
        queries[query.key] = query
    if not queries:
        raise FileFormatError(f"{path} holds no question. {_WAY_OUT}")
    return tuple(queries.values())


MAX_QUESTION_TOKENS = 1_600
"""What the paper's prompt of 8,192 tokens leaves beside the agent's instructions and a full reference block."""
_SHOWN = 3


LeftOut = Literal[
    "cannot be read", "is evaluated on", "stands there already", "has no rubrics", "has too long a question"
]
"""Why a row is not in the training set."""


class PreparedSet(Frozen):
    """What became of the rows of a data set; numbers of rows count from 1."""

    rows: int
    questions: int
    rubrics: int
    flaws: int
    """Of the rubrics, those that name one."""
    left_out: dict[LeftOut, tuple[int, ...]]
    problems: tuple[str, ...]
    """What is wrong with the first rows that cannot be read."""


def wording(question: str) -> str:
    """A question's words alone, so that case, spaces and punctuation do not hide that it is the same one."""
    return " ".join(re.findall(r"\w+", question.casefold()))


def write_training_set(
    path: Path,
    rows: Iterable[SourceRow],
    *,
    evaluated: Collection[str] = (),
    max_question_tokens: int = MAX_QUESTION_TOKENS,
    skips_broken: bool = False,
    needs_rubrics: bool = True,
) -> PreparedSet:
    """Write the rows that are fit, one `Query` a line; the file is whole or stays as it was.

    `evaluated` are the `wording` of questions that must not be trained on. A teacher's questions need no rubrics.

    Raises:
        FileFormatError: a row cannot be read and broken ones are not to be skipped, or no row is fit.
    """
    kept: dict[str, list[Polarity]] = {}
    left_out: dict[LeftOut, list[int]] = {}
    problems: list[str] = []

    def report() -> PreparedSet:
        return PreparedSet(
            rows=len(kept) + sum(map(len, left_out.values())),
            questions=len(kept),
            rubrics=sum(map(len, kept.values())),
            flaws=sum(polarities.count("negative") for polarities in kept.values()),
            left_out={reason: tuple(numbers) for reason, numbers in left_out.items()},
            problems=tuple(problems),
        )

    def lines() -> Iterator[bytes]:
        for number, content, problem in rows:
            query = _read_row(number, content, problem, problems=problems)
            reason = _reason_against(query, kept, evaluated, max_question_tokens, needs_rubrics=needs_rubrics)
            if query is None or reason is not None:
                left_out.setdefault(reason or "cannot be read", []).append(number)
                continue
            kept[query.key] = [rubric.polarity for rubric in query.rubrics]
            yield query.model_dump_json().encode() + b"\n"
        _refuse_unfit(report(), skips_broken=skips_broken)

    with writing(path, "Make room, or choose another."):
        write_atomic(path, lambda file: file.writelines(lines()))
    return report()


def _read_row(number: int, content: object, problem: str, *, problems: list[str]) -> Query | None:
    if not problem:
        try:
            return query_in(content)
        except FileFormatError as fault:
            problem = str(fault).removesuffix(".")
    if len(problems) < _SHOWN:
        problems.append(f"row {number}: {problem}")
    return None


def _reason_against(
    query: Query | None, kept: Collection[str], evaluated: Collection[str], max_tokens: int, *, needs_rubrics: bool
) -> LeftOut | None:
    if query is None:
        return "cannot be read"
    if wording(query.question) in evaluated:
        return "is evaluated on"
    if query.key in kept:
        return "stands there already"
    if estimate_tokens(query.question) > max_tokens:
        return "has too long a question"
    return "has no rubrics" if needs_rubrics and not query.rubrics else None


def _refuse_unfit(found: PreparedSet, *, skips_broken: bool) -> None:
    broken = len(found.left_out.get("cannot be read", ()))
    if broken and not skips_broken:
        raise FileFormatError(
            f"{broken} of {found.rows} rows cannot be read: {'; '.join(found.problems)}. Nothing is written. "
            "Mend them, or leave them out with --skip-broken."
        )
    if not found.rows:
        raise FileFormatError("the data set has no rows; give a file with one JSON object a line.")
    if len(found.left_out.get("has no rubrics", ())) == found.rows - broken > 0:
        raise FileFormatError(
            f"no row of the data set has rubrics in {' or '.join(RUBRIC_NAMES)}; RL needs questions with persistent "
            'rubrics, such as {"question": ..., "rubrics": [{"title", "description", "weight"}]}. With --for-teacher they '
            "become questions for `rubricem data teach`."
        )
    if not found.questions:
        counts = ", ".join(f"{len(numbers)} {reason}" for reason, numbers in found.left_out.items())
        raise FileFormatError(f"no row of the data set is fit to train on: {counts}. Nothing is written.")
