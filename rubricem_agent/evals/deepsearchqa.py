"""DeepSearchQA: which parts of a gold answer a reply holds, and what it says in excess.

The judge splits the gold answer, not the code. Empty answers and empty or malformed ratings are excluded from every
denominator officially; `deepsearchqa_aggregate` counts them and offers the strict variant beside it.
"""

from enum import StrEnum
from typing import NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.reply_json import Unparsed, parse_json

_OPENING = "```json"
_FENCE = "```"


class Exclusion(StrEnum):
    """Why an answer leaves every denominator."""

    EMPTY_RESPONSE = "empty_response"
    EMPTY_RATER = "empty_rater"
    INVALID_RATER = "invalid_rater"


class Rating(NamedTuple):
    """The judge's count: expected parts, those found, and answers in excess."""

    expected: int
    found: int
    excessive: int

    @property
    def precision(self) -> float:
        return _ratio(self.found, self.found + self.excessive)

    @property
    def recall(self) -> float:
        return _ratio(self.found, self.expected)

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * (self.precision * self.recall) / both if both > 0 else 0.0

    @property
    def is_fully_correct(self) -> bool:
        """Every part found and nothing in excess. A rating with no part at all counts as correct, with P = R = F1 = 0."""
        return self.found == self.expected and not self.excessive

    @property
    def is_correct_with_excessive(self) -> bool:
        return self.found == self.expected and self.excessive > 0

    @property
    def is_fully_incorrect(self) -> bool:
        """No part found although there was one to find."""
        return self.expected > 0 and self.found == 0


def rate(response: str, reply: str) -> Rating | Exclusion:
    """Rate one answer from the judge's reply. An empty answer comes before any look at the reply."""
    if not response.strip():
        return Exclusion.EMPTY_RESPONSE
    if not reply:
        return Exclusion.EMPTY_RATER
    return parse_rating(reply)


def parse_rating(reply: str) -> Rating | Exclusion:
    """Invalid: broken JSON, a missing node or explanation, a detail that is no boolean, an excess that is no list of texts.

    A missing excess is fine. JSON that is neither an object nor empty raises ScoringError("AttributeError").
    """
    parsed = parse_json(_unfenced(reply))
    if isinstance(parsed, Unparsed) or not parsed:
        return Exclusion.INVALID_RATER
    if not isinstance(parsed, dict):
        raise ScoringError("AttributeError", f"the rating is a JSON {type(parsed).__name__}, not an object")
    node = parsed.get("Answer Correctness")
    if not isinstance(node, dict) or not isinstance(node.get("Explanation"), str):
        return Exclusion.INVALID_RATER
    return _count(node.get("Correctness Details"), node.get("Excessive Answers", []))


def _count(details: JsonValue, excessive: JsonValue) -> Rating | Exclusion:
    if not isinstance(details, dict) or not all(isinstance(found, bool) for found in details.values()):
        return Exclusion.INVALID_RATER
    if not isinstance(excessive, list) or not all(isinstance(answer, str) for answer in excessive):
        return Exclusion.INVALID_RATER
    return Rating(len(details), list(details.values()).count(True), len(excessive))


def _unfenced(reply: str) -> str:
    """What stands between the first fence labelled json and the last fence; a bare fence is not taken off."""
    _, opening, content = reply.strip().partition(_OPENING)
    if not opening:
        return reply.strip()
    inside, closing, _ = content.strip().rpartition(_FENCE)
    return inside.strip() if closing else content.strip()


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole > 0 else 0.0
