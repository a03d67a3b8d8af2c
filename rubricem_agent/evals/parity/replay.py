"""Parity: recorded verdicts replayed through our scorers, and every disagreement with the official numbers.

A file of recorded cases has one JSON object per line: the input of a scorer and the official result. Any such file can
be replayed. An unknown unit counts as a disagreement, never as agreement. Floats agree within 1e-12, everything else
must be equal.
"""

import json
import math
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from rubricem_agent.evals.files import Advice, json_lines
from rubricem_agent.evals.parity.recorded_judge import CountedScoringError
from rubricem_agent.evals.parity.suite import UNITS
from rubricem_agent.evals.parity.unit import Scorer
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_agent.evals.shown_value import shown
from rubricem_env.domain.base import Frozen, Text, well_formed
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import first_problem, validating

# The exit codes of `rubricem parity`.
AGREED = 0
DISAGREED = 1
UNREADABLE = 2
TOLERANCE = 1e-12

_COMMENTS = ("note", "message")
"""Keys of `expected` that describe the case and are not results."""

_STATUS_NAMES = {
    "empty_model_response": "empty_response",
    "empty_model": "empty_response",
    "empty_auto_rater_response": "empty_rater",
    "empty_auto_rater": "empty_rater",
    "empty_judge": "empty_rater",
    "invalid_auto_rater_response": "invalid_rater",
    "invalid_auto_rater": "invalid_rater",
}
"""The official flags and their short names mean the same."""
_MISSING = object()


RECORDINGS = Advice(
    "the path of a .jsonl file of recorded verdicts",
    "A recorded case is a JSON object with the texts id, benchmark and unit and the objects input and expected: "
    "correct or remove the line.",
)


class RecordedCase(Frozen):
    """One line. `expected.error` names the type that the official code raised; `variants` are other known scorers."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=True)

    id: Text
    benchmark: Text
    unit: Text
    input: dict[str, JsonValue]
    expected: dict[str, JsonValue]
    variants: dict[str, JsonValue] = Field(default_factory=dict)


class Disagreement(NamedTuple):
    """A recorded case whose results differ from ours, with one sentence for each difference."""

    case_id: str
    differences: tuple[str, ...]


class FileAgreement(NamedTuple):
    """How many of a file's cases agree, and the others in the order of the file."""

    agreed: int
    total: int
    disagreements: tuple[Disagreement, ...]


def replay(path: Path) -> FileAgreement:
    """Replay every case of a file.

    Raises FileFormatError where the file cannot be read, has no case, or a line (named by its number) is not a case.
    """
    cases = read_cases(path)
    compared = [Disagreement(case.id, tuple(replay_case(case))) for case in cases]
    disagreements = tuple(case for case in compared if case.differences)
    return FileAgreement(len(cases) - len(disagreements), len(cases), disagreements)


def read_cases(path: Path) -> list[RecordedCase]:
    """All cases of a file, blank lines skipped. Raises FileFormatError at the first line that is not a case."""
    cases = []
    for line in json_lines(path, RECORDINGS):
        with validating(line.where, RECORDINGS.way_out):
            cases.append(RecordedCase.model_validate(line.content))
    return cases


def replay_case(case: RecordedCase) -> list[str]:
    """The differences of one case, variants included; empty where we agree."""
    unit = UNITS.get(case.benchmark, {}).get(case.unit)
    if unit is None:
        return [f"no scorer is known for unit {case.unit!r} of benchmark {case.benchmark!r}; it was not replayed"]
    try:
        differences = case_differences(case.expected, _score(unit.official, case.input))
        for name, expected in case.variants.items():
            if name not in unit.variants:
                differences.append(f"variants: no scorer is known for {name!r}; it was not replayed")
                continue
            computed = _score(unit.variants[name], case.input)
            differences.extend(differences_at(f"variants.{name}", expected=expected, computed=computed))
    except (ValidationError, FileFormatError) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else error
        return [f"the input does not fit unit {case.unit!r}: {reason}"]
    return differences


def _score(score: Scorer, case_input: Mapping[str, JsonValue]) -> object:
    """Call a scorer with the fields that its parameters name, checked as JSON: other fields are ignored."""
    fields = {name: case_input[name] for name in signature(score).parameters if name in case_input}
    try:
        return _adapter(score).validate_json(str(well_formed(json.dumps(fields, ensure_ascii=False))))
    except CountedScoringError as error:
        return {"error": error.official, "judge_calls": error.judge_calls}
    except ScoringError as error:
        return {"error": error.official}


@cache
def _adapter(score: Any) -> TypeAdapter[object]:
    return TypeAdapter(score, config=ConfigDict(strict=True, allow_inf_nan=True))


def case_differences(expected: Mapping[str, object], computed: object) -> list[str]:
    """One sentence per difference, in the order of `expected`. Computed keys that are not expected are not compared."""
    if not isinstance(computed, Mapping):
        return [_sentence("the result", expected=expected, computed=computed)]
    differences: list[str] = []
    for key, value in expected.items():
        if key not in _COMMENTS:
            differences.extend(differences_at(key, expected=value, computed=computed.get(key, _MISSING)))
    return differences


def differences_at(where: str, *, expected: object, computed: object) -> Iterator[str]:
    """The differences below `where`; inside it objects must have the same keys and lists the same length."""
    if isinstance(expected, Mapping) and isinstance(computed, Mapping):
        for key in dict.fromkeys((*expected, *computed)):
            yield from differences_at(
                f"{where}.{key}", expected=expected.get(key, _MISSING), computed=computed.get(key, _MISSING)
            )
    elif isinstance(expected, list | tuple) and isinstance(computed, list | tuple) and len(expected) == len(computed):
        for index, (wanted, got) in enumerate(zip(expected, computed, strict=True)):
            yield from differences_at(f"{where}[{index}]", expected=wanted, computed=got)
    elif not _agree(expected, computed, is_status=where == "status"):
        yield _sentence(where, expected=expected, computed=computed)


def _agree(expected: object, computed: object, *, is_status: bool) -> bool:
    if isinstance(expected, bool) or isinstance(computed, bool):
        return expected is computed
    if isinstance(expected, int | float) and isinstance(computed, int | float):
        both_nan = math.isnan(expected) and math.isnan(computed)
        return both_nan or math.isclose(expected, computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if is_status and isinstance(expected, str) and isinstance(computed, str):
        return _STATUS_NAMES.get(expected, expected) == _STATUS_NAMES.get(computed, computed)
    return expected == computed


def _sentence(where: str, *, expected: object, computed: object) -> str:
    return f"{where}: expected {_result(expected)}, got {_result(computed)}"


def _result(value: object) -> str:
    return "nothing" if value is _MISSING else shown(repr(value), limit=300)
