"""How a policy draws its text, as configs and manifests record it."""

from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen


class Sampling(Frozen):
    """How a policy draws its text."""

    temperature: Annotated[float, Field(ge=0, le=5)] = 1.0
    """0 takes the likeliest token every time."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Only the likeliest tokens of this probability are drawn. Policies that record tokens draw from all."""
    max_turn_tokens: Annotated[int, Field(ge=1)] = 8_192
    """The limit of one turn; a turn that reaches it ends without an action."""
