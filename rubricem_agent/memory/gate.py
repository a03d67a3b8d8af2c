"""The write gate: what may enter the bank, which outlives every page and every policy that it came from.

A reflection that passes here will stand in the prompts of later attempts. So it must be short guidance and nothing
else: no address to visit, no markup, no order to a model, a tool or a judge, no sentence copied from a page, nothing
that a person has removed before. Lookalike letters and unseen characters are folded away before anything is matched.
"""

from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import Field

from rubricem_agent.memory.item import text_digest
from rubricem_agent.memory.suspicion import (
    find_address,
    find_machine_call,
    find_markup,
    find_order,
    find_score_request,
    find_unseen,
)
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.reflection import Reflection
from rubricem_env.scaffold.shown_text import ShownText

Limit = Annotated[int, Field(ge=1)]


class RefusalCode(StrEnum):
    """Why a reflection did not enter the bank."""

    FORMAT = "format"
    """Not the two blocks, once each, in order, with something in them."""
    TOO_LONG = "too_long"
    ADDRESS = "address"
    MARKUP = "markup"
    """A tag of the scaffold, a chat special, or any other tag."""
    ORDER = "order"
    """Speaks to a model as its master."""
    TOOL_CALL = "tool_call"
    SCORE_REQUEST = "score_request"
    """Speaks to a judge."""
    UNSEEN = "unseen"
    """Characters that a reader does not see."""
    COPIED = "copied"
    REMOVED_BEFORE = "removed_before"
    EVALUATION = "evaluation"
    """Its question is kept for evaluation."""
    SCORE = "score"
    """Below the score that the bank asks for."""


class Refusal(NamedTuple):
    """A reflection that was not let in: a value, for the record and the counts."""

    code: RefusalCode
    sentence: str


class GateLimits(Frozen):
    """How long a reflection may be, and how good it must be; defaults hold what 2,048 tokens can say."""

    rubrics_chars: Limit = 6_000
    takeaways_chars: Limit = 4_000
    question_chars: Limit = 20_000
    min_score: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Utility below this is refused (choice C4); an unjudged reflection has none and passes."""


_TextCheck = tuple[RefusalCode, str, Callable[[str], str | None]]
_TEXT_CHECKS: Sequence[_TextCheck] = (
    (RefusalCode.UNSEEN, "holds a character that nobody sees", find_unseen),
    (RefusalCode.ADDRESS, "holds an address", find_address),
    (RefusalCode.MARKUP, "holds markup", find_markup),
    (RefusalCode.TOOL_CALL, "holds the syntax of a tool call", find_machine_call),
    (RefusalCode.SCORE_REQUEST, "speaks to a judge", find_score_request),
    (RefusalCode.ORDER, "gives an order to a model", find_order),
)


class WriteGate:
    """Decides by the text alone, so that the same reflection always meets the same answer."""

    def __init__(self, limits: GateLimits | None = None, *, evaluation_keys: Collection[str] = frozenset()) -> None:
        self.limits = limits or GateLimits()
        self._evaluation_keys = frozenset(evaluation_keys)

    def refuse(
        self, reflection: Reflection, *, pages: ShownText | None = None, removed: Collection[str] = frozenset()
    ) -> Refusal | None:
        """Why the reflection may not enter, or None where it may.

        `pages` is what tools have shown in the attempt; `removed` are the digests of removed texts.
        """
        return (
            self._refuse_frame(reflection)
            or _refuse_text(reflection)
            or _refuse_repetition(reflection, pages or ShownText(), removed)
        )

    def _refuse_frame(self, reflection: Reflection) -> Refusal | None:
        limits = self.limits
        if reflection.query_key in self._evaluation_keys:
            return Refusal(RefusalCode.EVALUATION, "the question is kept for evaluation; the bank may not learn it.")
        for part, text, limit in (
            ("rubrics", reflection.rubrics, limits.rubrics_chars),
            ("takeaways", reflection.takeaways, limits.takeaways_chars),
            ("question", reflection.question, limits.question_chars),
        ):
            if len(text) > limit:
                return Refusal(
                    RefusalCode.TOO_LONG, f"the {part} have {len(text):,} characters; at most {limit:,} may enter."
                )
        if reflection.score is not None and reflection.score.utility < limits.min_score:
            return Refusal(
                RefusalCode.SCORE, f"utility {reflection.score.utility:.3f} is below min_score {limits.min_score}."
            )
        return None


def _refuse_text(reflection: Reflection) -> Refusal | None:
    for part, text in (("rubrics", reflection.rubrics), ("takeaways", reflection.takeaways)):
        for code, fault, find in _TEXT_CHECKS:
            found = find(text)
            if found is not None:
                return Refusal(code, f"the {part} block {fault}: {_shown(found)}.")
    return None


def _refuse_repetition(reflection: Reflection, pages: ShownText, removed: Collection[str]) -> Refusal | None:
    if text_digest(reflection) in removed:
        return Refusal(RefusalCode.REMOVED_BEFORE, "a person removed this text from the bank; it does not come back.")
    copied = pages.find_copy(f"{reflection.rubrics}\n{reflection.takeaways}")
    if copied is not None:
        return Refusal(RefusalCode.COPIED, f"it repeats a page word for word: {_shown(copied)}.")
    return None


def _shown(found: str) -> str:
    """Evidence that is safe to print."""
    plain = found.encode("unicode_escape").decode("ascii") if not found.isprintable() else found
    return repr(plain if len(plain) <= 60 else plain[:57] + "...")
