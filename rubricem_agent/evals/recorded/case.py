"""Recorded cases on disk: one JSON object per line, with the input of a scorer and what the official one gave for it."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from rubricem_agent.evals.errors import RecordedCaseError
from rubricem_env.domain.base import Frozen, Text


class RecordedCase(Frozen):
    """One line. `expected.error` names the type that the official code raised; `variants` are other known scorers."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=True)

    id: Text
    benchmark: Text
    unit: Text
    input: dict[str, JsonValue]
    expected: dict[str, JsonValue]
    variants: dict[str, JsonValue] = Field(default_factory=dict)


def read_cases(path: Path) -> list[RecordedCase]:
    """All cases of a file, blank lines passed over. Raises RecordedCaseError at the first line that is none."""
    cases = [_read_line(path, line, number=number) for number, line in _lines(path)]
    if not cases:
        raise RecordedCaseError(f"{path} holds no recorded case; a file of verdicts has one JSON object per line.")
    return cases


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordedCaseError(
            f"{path} cannot be read as UTF-8 text ({error}); give the path of a .jsonl file of recorded verdicts."
        ) from error
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line


def _read_line(path: Path, line: str, *, number: int) -> RecordedCase:
    try:
        # Python's own JSON, in which the recordings were written, lets NaN and lone surrogates through.
        return RecordedCase.model_validate(json.loads(line))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise _refusal(path, number, reason=f"{where}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise _refusal(path, number, reason=f"not JSON: {error}") from error


def _refusal(path: Path, number: int, *, reason: str) -> RecordedCaseError:
    return RecordedCaseError(
        f"{path} line {number}: {reason}; a recorded case is a JSON object with the texts id, benchmark and unit and "
        "the objects input and expected. Mend or remove the line."
    )
