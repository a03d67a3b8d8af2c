"""Reads rubrics from a file: a JSON list or JSON lines, in the data set's shape or in this project's own."""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import TypeVar

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.rubric import Polarity, Rubric
from rubricem_env.domain.stage import Stage

MAX_RUBRICS = 500
Kind = TypeVar("Kind", Stage, Polarity)


def read_rubrics(text: str, where: str) -> tuple[Rubric, ...]:
    """The rubrics of a file's text; `where` names the file in messages.

    A row is {"title", "description", "weight"}: a persistent rubric of the Answer stage whose negative weight makes
    it a flaw. With "stage" it may be any stage's, with "polarity" its weight must be positive, and "persistent"
    tells whether it can be retired: by default only answer rubrics cannot. Rows with the weight 0 are dropped.

    Raises:
        FileFormatError: not such a list, naming the first row that is wrong.
    """
    rows = list(_rows(text, where))
    if len(rows) > MAX_RUBRICS:
        raise FileFormatError(f"{where} holds {len(rows)} rubrics; at most {MAX_RUBRICS} are read for one question.")
    found = [_read_row(row, f"{where}, rubric {number}") for number, row in enumerate(rows, start=1)]
    return tuple({rubric.id: rubric for rubric in found if rubric is not None}.values())


def _rows(text: str, where: str) -> Iterator[object]:
    if not text.strip():
        raise FileFormatError(f"{where} is empty; it should hold a JSON list of rubrics, or one rubric a line.")
    try:
        whole = json.loads(text)
    except RecursionError as cause:
        raise FileFormatError(f"{where} is nested too deeply to be a list of rubrics.") from cause
    except ValueError:
        yield from _lines(text, where)
        return
    yield from whole if isinstance(whole, list) else [whole]


def _lines(text: str, where: str) -> Iterator[object]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as cause:
                raise FileFormatError(
                    f"{where} is neither a JSON list nor JSON lines: line {number} says {line.strip()[:40]!r}."
                ) from cause


def _read_row(row: object, where: str) -> Rubric | None:
    if not isinstance(row, dict):
        raise FileFormatError(f"{where} is {row!r:.60}; a rubric is an object with title, description and weight.")
    stage = _choice(row, "stage", kind=Stage, default=Stage.ANSWER, where=where)
    weight = _weight(row, where)
    if "polarity" in row and weight < 0:
        raise FileFormatError(f"{where} has a polarity and the negative weight {weight:g}; give one or the other.")
    signed = Polarity.NEGATIVE if weight < 0 else Polarity.POSITIVE
    persistent = row.get("persistent", stage is Stage.ANSWER)
    if not isinstance(persistent, bool) or (persistent and stage is not Stage.ANSWER):
        raise FileFormatError(f"{where} is persistent in the stage {stage.value}; only answer rubrics are persistent.")
    if weight == 0:
        return None
    description = _text(row, "description", where=where)
    return Rubric(
        stage=stage,
        title=_text(row, "title", where=where, default=description[:80]),
        description=description,
        polarity=_choice(row, "polarity", kind=Polarity, default=signed, where=where),
        weight=abs(weight),
        persistent=persistent,
    )


def _text(row: Mapping[str, object], name: str, *, where: str, default: str | None = None) -> str:
    value = row.get(name, default)
    if not isinstance(value, str) or not value.strip():
        raise FileFormatError(f"{where} has the {name} {value!r:.60}; it needs a text.")
    return value.strip()


def _weight(row: Mapping[str, object], where: str) -> float:
    weight = row.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not abs(weight) <= sys.float_info.max:
        raise FileFormatError(f"{where} has the weight {weight!r:.40}; it needs a finite number, below 0 for a flaw.")
    return float(weight)


def _choice(row: Mapping[str, object], name: str, *, kind: type[Kind], default: Kind, where: str) -> Kind:
    value = row.get(name, default.value)
    names = [member.value for member in kind]
    if value not in names:
        raise FileFormatError(f"{where} has the {name} {value!r:.40}; it is one of {', '.join(names)}.")
    return kind(value)
