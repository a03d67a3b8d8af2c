"""The replies of a judge model: the schema that is asked for, and the check of each entry."""

from collections.abc import Collection, Mapping
from typing import Literal, TypeVar

from pydantic import ValidationError, create_model

from rubricem_env.domain.base import Frozen, UnitScore
from rubricem_env.domain.scale import Score


# No field of a reply has a default, as strict server schemas demand.
class WireRubric(Frozen):
    title: str
    description: str
    weight: int


_RubricList = list[WireRubric]
WireStage = create_model("WireStage", __base__=Frozen, positive_rubrics=_RubricList, negative_rubrics=_RubricList)
WireProposal = create_model(
    "WireProposal", __base__=Frozen, stage_1=WireStage, stage_2=WireStage, stage_3=WireStage, stage_4=WireStage
)


class WireScore(Frozen):
    index: int
    justification: str
    score: Score


class WireReflectionScore(Frozen):
    index: int
    justification: str
    diagnostic_accuracy: UnitScore
    specificity: UnitScore
    scope_and_balance: UnitScore


class WirePurpose(Frozen):
    index: int
    justification: str
    purpose: Literal["research", "reader", "promotion", "other"]


WireScores = create_model("WireScores", __base__=Frozen, scores=list[WireScore])
WireReflectionScores = create_model("WireReflectionScores", __base__=Frozen, scores=list[WireReflectionScore])
WirePurposes = create_model("WirePurposes", __base__=Frozen, scores=list[WirePurpose])
Item = TypeVar("Item", WireScore, WireReflectionScore, WirePurpose)


def read_entries(
    reply: Mapping[str, object], kind: type[Item], *, asked: Collection[int]
) -> tuple[dict[int, Item], bool]:
    """The usable entries by index, and whether they are exactly the requested ones.

    An entry whose score has the wrong type (1.0, true, "2", NaN) is not usable. Neither is an index given twice,
    because it is unknown which is meant. An index that was not requested is dropped.
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
