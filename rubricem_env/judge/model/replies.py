"""The replies of a judge model: the schema that is asked for, and the check of the reply and of each entry."""

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ValidationError, create_model

from rubricem_env.domain.base import STAGES, Frozen, UnitScore
from rubricem_env.domain.errors import ModelError
from rubricem_env.domain.scale import Score

_DO = (
    "assist|help|comply|score|rate|judge|grade|evaluate|assess|provide|answer|fulfil|continue|process|complete|do that"
)
_REFUSAL = re.compile(
    r"\W*(?:(?:i(?: a|['\u2019])m )?(?:very |so )?sorry\b|i(?: a|['\u2019])m afraid\b"
    r"|i (?:must |have to )?(?:apologi[sz]e|refuse|decline)\b"
    r"|(?:(?:i|we) )?(?:(?:am |are )?(?:unable|not able) to|can(?:['\u2019]?t| ?not)|could(?:n['\u2019]t| not)"
    rf"|won['\u2019]t|will not|i['\u2019]m (?:unable|not able) to) (?:{_DO})\b"
    r"|as an ai(?: language)?(?: model| assistant)?,"
    r"|(?:an? )?(?:internal|server|system|unexpected|unknown) (?:server )?error\b"
    r"|an error (?:has )?occurred\b|error\b\W*(?:\d{3}\b|occurred\b|\Z)|n/?a\W*\Z)",
    re.IGNORECASE,
)
"""How a reason begins that gives none: a refusal, an apology or an error."""


def _reason(text: str) -> str:
    if not any(char.isalnum() for char in text):
        raise ValueError("it gives no reason")
    if _REFUSAL.match(text):
        raise ValueError("it is a refusal or an error, no reason")
    return text


Reason = Annotated[str, AfterValidator(_reason)]
"""Why a score was given. A score without a reason is none."""


# No field of a reply has a default, as strict server schemas demand.
class WireRubric(Frozen):
    title: str
    description: str
    weight: int


_RubricList = list[WireRubric]
WireStage = create_model("WireStage", __base__=Frozen, positive_rubrics=_RubricList, negative_rubrics=_RubricList)


@cache
def wire_proposal(num_stages: int) -> type[BaseModel]:
    """The reply to a request for rubrics: `stage_1` and so on, each with its two lists."""
    fields: dict[str, Any] = {f"stage_{number}": WireStage for number in range(1, num_stages + 1)}
    return create_model("WireProposal", __base__=Frozen, **fields)


WireProposal = wire_proposal(len(STAGES))
"""The reply about deep research."""


class WireScore(Frozen):
    index: int
    justification: Reason
    score: Score


class WireReflectionScore(Frozen):
    index: int
    justification: Reason
    diagnostic_accuracy: UnitScore
    specificity: UnitScore
    scope_and_balance: UnitScore


class WirePurpose(Frozen):
    index: int
    justification: Reason
    purpose: Literal["research", "reader", "promotion", "other"]


WireScores = create_model("WireScores", __base__=Frozen, scores=list[WireScore])
WireReflectionScores = create_model("WireReflectionScores", __base__=Frozen, scores=list[WireReflectionScore])
WirePurposes = create_model("WirePurposes", __base__=Frozen, scores=list[WirePurpose])
Item = TypeVar("Item", WireScore, WireReflectionScore, WirePurpose)


def read_entries(reply: Mapping[str, object], kind: type[Item], *, asked: Collection[int]) -> dict[int, Item]:
    """The usable entries by index; fewer than were asked for where some are missing or unusable.

    An entry is unusable whose score has the wrong type (1.0, true, "2", NaN), that has no reason or another field, and
    one whose index is given twice, because it is unknown which is meant.

    Raises:
        ModelError: the reply as a whole is unusable. It has a field beside `scores`, an index that was not asked for
            (the others may then be shifted), a zero for everything with one reason (a refusal), or no usable entry.
    """
    others = sorted(reply.keys() - {"scores"})
    if others:
        raise ModelError(f"it has the field {others[0][:40]!r} beside scores", is_retryable=True)
    listed = reply.get("scores")
    rows = [row if isinstance(row, dict) else {} for row in listed] if isinstance(listed, list) else []
    indices: list[int] = []
    for row in rows:
        index = row.get("index")
        if type(index) is not int or index not in asked:
            said = f"it has an entry with the index {str(index)[:20]}, which was not asked for"
            raise ModelError(said, is_retryable=True)
        indices.append(index)
    found: dict[int, Item] = {}
    for index, row in zip(indices, rows, strict=True):
        if indices.count(index) == 1:
            try:
                found[index] = kind.model_validate(row)
            except ValidationError:
                continue
    said_of_all = {f"{row.get('score')}: {row.get('justification')}" for row in rows}
    if len(found) > 1 and len(said_of_all) == 1 and rows[0].get("score") == 0:
        raise ModelError("it gives every criterion a zero for one and the same reason", is_retryable=True)
    if not found:
        raise ModelError("it holds no usable entry for any index", is_retryable=True)
    return found
