"""What the official scorers refuse: no number may be made up for such an input."""

from collections.abc import Mapping

from pydantic import JsonValue

from rubricem_env.domain.errors import RubricEMError


class ScoringError(RubricEMError):
    """The official scorer raises on this input, so that no number may be made up for it.

    `official` is the name of the exception type that the official code raises.
    """

    def __init__(self, official: str, reason: str) -> None:
        super().__init__(f"{reason} (the official scorer raises {official} here)")
        self.official = official
        self.reason = reason


def official_field(record: object, name: str) -> JsonValue:
    """A field of a recorded object, as the official code reads it: raises ScoringError where that code stops."""
    if not isinstance(record, Mapping):
        raise ScoringError("TypeError", f"{record!r} has no field {name}")
    if name not in record:
        raise ScoringError("KeyError", f"the record has no field {name}")
    value: JsonValue = record[name]
    return value
