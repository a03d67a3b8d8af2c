"""Reads the rubrics of a question from a file."""

import json
from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, ValidationInfo, model_validator

from rubricem_env.domain.base import STAGES, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.judgement import Polarity, Rubric

MAX_RUBRICS = 500


def _stages_of(info: ValidationInfo) -> Sequence[str]:
    stages: Sequence[str] = (info.context or {}).get("stages", STAGES)
    return stages


def _known_stage(stage: str, info: ValidationInfo) -> str:
    stages = _stages_of(info)
    if stage not in stages:
        raise ValueError(f"it is of no stage; the stages are {', '.join(stages)}")
    return stage


class RubricRow(BaseModel):
    """A rubric as a file has it; `read_rubrics` says what its fields mean."""

    model_config = ConfigDict(str_strip_whitespace=True)

    description: Text = ""
    title: Annotated[Text, Field(min_length=1)] = ""
    weight: Annotated[float, Field(strict=True, allow_inf_nan=False)] = 1.0
    stage: Annotated[str, AfterValidator(_known_stage)] = ""
    """Empty is the last stage."""
    polarity: Polarity = "positive"
    persistent: StrictBool = True

    @model_validator(mode="after")
    def _agrees_with_itself(self, info: ValidationInfo) -> Self:
        last = _stages_of(info)[-1]
        if "polarity" in self.model_fields_set and self.weight < 0:
            raise ValueError(f"it has a polarity and the negative weight {self.weight:g}; give one or the other")
        if "persistent" in self.model_fields_set and self.persistent and self.stage not in ("", last):
            raise ValueError(f"it is persistent in the stage {self.stage}; only {last} rubrics are persistent")
        if self.weight and not self.description:
            raise ValueError("it has no description; it needs a text")
        return self

    def rubric(self, last: str) -> Rubric:
        """The rubric of a row whose weight is not 0; `last` is the last stage."""
        return Rubric(
            stage=self.stage or last,
            title=self.title or self.description[:80],
            description=self.description,
            polarity="negative" if self.weight < 0 else self.polarity,
            weight=abs(self.weight),
            persistent=self.persistent and self.stage in ("", last),
        )


def read_rubrics(text: str, where: str, stages: Sequence[str] = STAGES) -> tuple[Rubric, ...]:
    """The rubrics of a file's text; `where` names the file in messages.

    A row is {"title", "description", "weight"}: a persistent rubric of the last stage whose negative weight makes
    it a flaw. With "stage" it may be any stage's, with "polarity" its weight must be positive, and "persistent"
    tells whether it can be retired: by default only those of the last stage cannot. Rows with the weight 0 are dropped.

    Raises:
        FileFormatError: not such a list, naming the first row that is wrong.
    """
    rows = _rows(text, where)
    if len(rows) > MAX_RUBRICS:
        raise FileFormatError(f"{where} holds {len(rows)} rubrics; at most {MAX_RUBRICS} are read for one question.")
    rubrics = {}
    for number, row in enumerate(rows, start=1):
        with validating(f"{where}, rubric {number}", "A rubric has title, description and weight, below 0 for a flaw."):
            read = RubricRow.model_validate(row, context={"stages": stages})
        if read.weight:
            rubric = read.rubric(stages[-1])
            rubrics[rubric.id] = rubric
    return tuple(rubrics.values())


def _rows(text: str, where: str) -> list[object]:
    if not text.strip():
        raise FileFormatError(f"{where} is empty; it should hold a JSON list of rubrics, or one rubric a line.")
    try:
        whole = json.loads(text)
    except RecursionError as cause:
        raise FileFormatError(f"{where} is nested too deeply to be a list of rubrics.") from cause
    except ValueError:
        rows = []
        for number, line in enumerate(text.split("\n"), start=1):
            try:
                rows += [json.loads(line)] if line.strip() else []
            except (ValueError, RecursionError) as cause:
                raise FileFormatError(
                    f"{where} is neither a JSON list nor JSON lines: line {number} says {line.strip()[:40]!r}."
                ) from cause
        return rows
    return whole if isinstance(whole, list) else [whole]
