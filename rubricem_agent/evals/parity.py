"""Parity: recorded verdicts replayed through our scorers, and every disagreement with the official numbers.

Any file of the recorded shape will do; nothing here knows particular rows. A unit that is not known counts as a
disagreement, never as agreement.

Recorded cases on disk: one JSON object per line, with the input of a scorer and what the official one gave for it.

Where an expected and a computed value differ: floats agree within 1e-12, everything else must be equal.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from rubricem_agent.evals import extraction
from rubricem_agent.evals.base import CaseInput, RecordedCaseError, Scorer, ScoringError, Unit
from rubricem_agent.evals.benchmarks import (
    deepsearchqa,
    drb_fact,
    drb_race,
    healthbench,
    researchqa,
    researchrubrics,
    simpleqa,
    twowiki,
    webwalkerqa,
)
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


TOLERANCE = 1e-12
SHOWN = 300

_OWN_WORDS = ("note", "message")
"""Keys of `expected` that hold a sentence about the case, not a result."""

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


def case_differences(expected: Mapping[str, object], computed: object) -> list[str]:
    """One sentence per difference, in the order of `expected`. What is computed beyond the expected keys is not compared."""
    if not isinstance(computed, Mapping):
        return [_sentence("the result", expected=expected, computed=computed)]
    differences: list[str] = []
    for key, value in expected.items():
        if key not in _OWN_WORDS:
            differences.extend(differences_at(key, expected=value, computed=computed.get(key, _ABSENT)))
    return differences


def differences_at(place: str, *, expected: object, computed: object) -> Iterator[str]:
    """The differences below `place`; inside it objects must have the same keys and lists the same length."""
    if isinstance(expected, Mapping) and isinstance(computed, Mapping):
        for key in dict.fromkeys((*expected, *computed)):
            yield from differences_at(
                f"{place}.{key}", expected=expected.get(key, _ABSENT), computed=computed.get(key, _ABSENT)
            )
    elif isinstance(expected, list | tuple) and isinstance(computed, list | tuple) and len(expected) == len(computed):
        for position, (wanted, got) in enumerate(zip(expected, computed, strict=True)):
            yield from differences_at(f"{place}[{position}]", expected=wanted, computed=got)
    elif not _agree(expected, computed, is_status=place == "status"):
        yield _sentence(place, expected=expected, computed=computed)


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


_ABSENT = _Absent()


def _agree(expected: object, computed: object, *, is_status: bool) -> bool:
    if isinstance(expected, bool) or isinstance(computed, bool):
        return expected is computed
    if isinstance(expected, int | float) and isinstance(computed, int | float):
        both_nan = math.isnan(expected) and math.isnan(computed)
        return both_nan or math.isclose(expected, computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if is_status and isinstance(expected, str) and isinstance(computed, str):
        return _STATUS_NAMES.get(expected, expected) == _STATUS_NAMES.get(computed, computed)
    return expected == computed


def _sentence(place: str, *, expected: object, computed: object) -> str:
    return f"{place}: expected {_shown(expected)}, got {_shown(computed)}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


UNITS: Mapping[str, Mapping[str, Unit]] = {
    "deepsearchqa": deepsearchqa.UNITS,
    "drb_fact": drb_fact.UNITS,
    "drb_race": drb_race.UNITS,
    "drtulu_io": extraction.UNITS,
    "healthbench": healthbench.UNITS,
    "researchqa": researchqa.UNITS,
    "researchrubrics": researchrubrics.UNITS,
    "simpleqa": simpleqa.UNITS,
    "twowiki": twowiki.UNITS,
    "webwalkerqa": webwalkerqa.UNITS,
}

AGREED, DISAGREED, UNREADABLE = 0, 1, 2
"""The exit codes of `rubricem parity`."""


class ParityDifference(NamedTuple):
    """A case on which we differ, and every difference in a sentence of its own."""

    id: str
    differences: tuple[str, ...]


class FileParity(NamedTuple):
    """The result for one file, disagreements in file order."""

    agreed: int
    total: int
    disagreements: tuple[ParityDifference, ...]


def replay(path: Path) -> FileParity:
    """Replay every case of a file. Raises RecordedCaseError, with the line number, where a line is not a case."""
    cases = read_cases(path)
    compared = (ParityDifference(case.id, tuple(replay_case(case))) for case in cases)
    disagreements = tuple(outcome for outcome in compared if outcome.differences)
    return FileParity(len(cases) - len(disagreements), len(cases), disagreements)


def replay_case(case: RecordedCase) -> list[str]:
    """The differences of one case, variants included; empty where we agree."""
    unit = UNITS.get(case.benchmark, {}).get(case.unit)
    if unit is None:
        return [f"no scorer is known for unit {case.unit!r} of benchmark {case.benchmark!r}; it was not replayed"]
    try:
        differences = case_differences(case.expected, _computed(unit.score, case.input))
        for name, expected in case.variants.items():
            if name not in unit.variants:
                differences.append(f"variants: no scorer is known for {name!r}; it was not replayed")
                continue
            differences.extend(
                differences_at(
                    f"variants.{name}", expected=expected, computed=_computed(unit.variants[name], case.input)
                )
            )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return [f"the input does not fit unit {case.unit!r}: {where}: {first['msg']}"]
    return differences


def _computed(score: Scorer, case_input: CaseInput) -> object:
    try:
        return score(case_input)
    except ScoringError as error:
        counted = {} if error.judge_calls is None else {"judge_calls": error.judge_calls}
        return {"error": error.official} | counted
