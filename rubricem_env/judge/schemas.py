"""The shapes of a judge's replies: told to the server as a schema, then checked item by item with nothing believed."""

from collections.abc import Collection, Mapping
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem_env.domain.judgement import Mark

Unit = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class _Wire(BaseModel):
    """Every field required, none unknown: what servers with strict schemas ask for."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class WireRubric(_Wire):
    title: str
    description: str
    weight: int


class WireStage(_Wire):
    positive_rubrics: list[WireRubric]
    negative_rubrics: list[WireRubric]


class WireProposal(_Wire):
    stage_1: WireStage
    stage_2: WireStage
    stage_3: WireStage
    stage_4: WireStage


class WireScore(_Wire):
    index: int
    justification: str
    score: Mark


class WireScores(_Wire):
    scores: list[WireScore]


class WireReflectionScore(_Wire):
    index: int
    justification: str
    diagnostic_accuracy: Unit
    specificity: Unit
    scope_and_balance: Unit


class WireReflectionScores(_Wire):
    scores: list[WireReflectionScore]


Item = TypeVar("Item", WireScore, WireReflectionScore)


def read_entries(
    reply: Mapping[str, object], kind: type[Item], *, asked: Collection[int]
) -> tuple[dict[int, Item], bool]:
    """The entries that can be used, by index, and whether they are exactly the ones asked for.

    An entry with a mark that is no whole number (1.0, true, "2", NaN) counts as not given. An index given twice
    counts as not given at all: nothing says which of the two is meant. An index that was not asked for is dropped.
    """
    listed = reply.get("scores")
    rows = listed if isinstance(listed, list) else []
    found: dict[int, Item] = {}
    spoiled: set[int] = set()
    for row in rows:
        index = row.get("index") if isinstance(row, dict) else None
        if type(index) is not int or index not in asked:
            continue
        if index in found or index in spoiled:
            spoiled.add(index)
            found.pop(index, None)
            continue
        try:
            found[index] = kind.model_validate(row)
        except ValidationError:
            spoiled.add(index)
    return found, len(found) == len(asked) == len(rows)
