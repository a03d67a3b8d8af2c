"""Where an expected and a computed value differ: floats agree within 1e-12, everything else must be equal."""

import math
from collections.abc import Iterator, Mapping

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
