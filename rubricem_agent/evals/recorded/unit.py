"""A unit: one kind of recorded case, how it is scored here, and how the other known scorers score it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from pydantic import ConfigDict, JsonValue

from rubricem_env.domain.base import Frozen, well_formed

CaseInput = Mapping[str, JsonValue]
Scorer = Callable[[CaseInput], object]
"""From a case's input to what our scorer gives: JSON-like values, NamedTuples already taken apart."""


@dataclass(frozen=True)
class Unit:
    """The scorer of a unit and those of its variants by name. A scorer raises ScoringError where the official one raises."""

    score: Scorer
    variants: Mapping[str, Scorer] = field(default_factory=dict)


class RecordedInput(Frozen):
    """Base of the inputs: fields that we do not read are let through, wrong types are not."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=True)

    @classmethod
    def read(cls, case_input: CaseInput) -> Self:
        """The input checked as JSON, where a list is a tuple. Raises pydantic's ValidationError."""
        return cls.model_validate_json(str(well_formed(json.dumps(case_input, ensure_ascii=False))))
