"""HealthBench as inspect_evals 0.26 grades it, kept to read published numbers: it departs from the official scorer.

Three tries, then the item counts as not met, which helps a model on a negative item; unlabelled fences are read;
no rubric or no positive points is a 0, not an error; a length penalty may be subtracted.
"""

from collections.abc import Sequence

from pydantic import JsonValue

from rubricem_agent.evals.healthbench import RubricItem
from rubricem_agent.evals.replies import Replies
from rubricem_agent.evals.reply_json import parse_json

MAX_TRIES = 3


def inspect_met(replies: Sequence[str]) -> JsonValue:
    """The verdict as it is counted: a boolean, or after three tries whatever the last reply held under criteria_met."""
    judge = Replies(replies)
    last: dict[str, JsonValue] = {}
    while judge.calls < MAX_TRIES:
        reply = judge.ask()
        if reply is None:
            last = {"criteria_met": False} if judge.calls == MAX_TRIES else last
            continue
        parsed = parse_json(_unfenced(reply))
        last = parsed if isinstance(parsed, dict) else {}
        if isinstance(last.get("criteria_met"), bool):
            break
    return last.get("criteria_met", False)


def inspect_score(rubrics: Sequence[RubricItem], met: Sequence[JsonValue]) -> float:
    """Points of the items that read as true over the positive points; 0 where there are none."""
    possible = sum(item.points for item in rubrics if item.points > 0)
    achieved = sum(item.points for item, value in zip(rubrics, met, strict=True) if value)
    return achieved / possible if possible > 0 else 0.0


def length_adjusted(score: float, answer: str, *, center: float, penalty_per_500_chars: float) -> float:
    """The score less `penalty_per_500_chars` for every 500 characters above `center` (more, where below)."""
    return score - penalty_per_500_chars * ((len(answer) - center) / 500.0)


def _unfenced(reply: str) -> str:
    text = reply.strip()
    text = text.removeprefix("```json") if text.startswith("```json") else text.removeprefix("```")
    return text.removesuffix("```").strip()
