"""The scale of a rubric score: 0 absent, 1 partial, 2 full.

Judges, prompts and arithmetic take it from here: whoever raises `FULL_SCORE` changes all of them.
"""

from typing import Annotated

from pydantic import Field

FULL_SCORE = 2
PARTIAL_SCORE = FULL_SCORE // 2
Score = Annotated[int, Field(strict=True, ge=0, le=FULL_SCORE)]
"""0 absent, 1 partial, 2 full. Strict: True and 1.0 are refused, which Literal[0, 1, 2] would let in."""


def score_of_share(share: float, *, full: float, partial: float) -> int:
    """The full score from the share `full` on, the partial score from `partial` on, else 0."""
    if share >= full:
        return FULL_SCORE
    return PARTIAL_SCORE if share >= partial else 0


def list_scores() -> str:
    """All scores in words, as in "0, 1 or 2"."""
    return f"{', '.join(map(str, range(FULL_SCORE)))} or {FULL_SCORE}"


def list_partial_scores() -> str:
    """The scores between absent and full: "1" on a scale of three."""
    return "1" if FULL_SCORE == 2 else f"1 to {FULL_SCORE - 1}"
