"""How much of a result a policy reads: caps in tokens for each snippet and for the whole observation."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen

TokenCount = Callable[[str], int]
CUT = " [cut]"


class ObservationCaps(Frozen):
    """The defaults let ten full observations leave a third of the paper's 18,432 response tokens to the policy."""

    snippet: Annotated[int, Field(ge=16)] = 300
    summary: Annotated[int, Field(ge=16)] = 600
    observation: Annotated[int, Field(ge=64)] = 1_200
    """Of foreign text; tags and notices are ours and small."""


def estimate_tokens(text: str) -> int:
    """A rough count where no tokenizer is at hand: four bytes a token, rounded up."""
    if text.isascii():
        return (len(text) + 3) // 4
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def cap_text(text: str, max_tokens: int, count: TokenCount) -> str:
    """The text if it is short enough, else its beginning and a mark; never more than `max_tokens` beside the mark.

    `count` must not fall when text grows.
    """
    # No tokenizer in use spends more than one token on a byte, so a short text needs no count; none packs more than
    # 64 characters into one, so what lies behind is not even looked at.
    if len(text) * 4 <= max_tokens:
        return text
    head = text[: max_tokens * 64]
    if len(head) == len(text) and count(text) <= max_tokens:
        return text
    low, high = 0, len(head)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(head[:middle]) <= max_tokens else (low, middle - 1)
    return head[:low].rstrip() + CUT
