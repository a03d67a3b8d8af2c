"""The scale of a rubric score: 0 absent, 1 partial, 2 full."""

from typing import Annotated

from pydantic import Field

FULL_SCORE = 2
Score = Annotated[int, Field(strict=True, ge=0, le=FULL_SCORE)]
"""0 absent, 1 partial, 2 full. Strict: True and 1.0 are refused, which Literal[0, 1, 2] would let in."""
