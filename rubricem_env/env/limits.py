"""How much an episode may use."""

from typing import Annotated

from pydantic import Field, model_validator

from rubricem_env.domain.base import Frozen


class EpisodeLimits(Frozen):
    """Budgets of one episode; the defaults are the paper's (section E.1) and choice A12."""

    max_calls: Annotated[int, Field(ge=1)] = 10
    """Executed tool calls. One attempt beyond it gets an error observation, a second one ends the episode."""
    max_turns: Annotated[int, Field(ge=2)] = 14
    """Emissions of any kind: the calls, the answer, and a few that went wrong."""
    max_tokens: Annotated[int, Field(ge=1)] = 18_432
    """Of the response: what the policy writes and what tools answer, the prompt left out."""
    max_idle_turns: Annotated[int, Field(ge=1)] = 2
    """Emissions in a row without an action that end the episode."""
    repeat_notice_at: Annotated[int, Field(ge=2)] = 3
    """The how-manieth identical call is answered with a notice."""

    @model_validator(mode="after")
    def _leaves_room_to_answer(self) -> "EpisodeLimits":
        if self.max_turns <= self.max_calls:
            raise ValueError(
                f"max_turns is {self.max_turns} and max_calls is {self.max_calls}; an episode needs a turn more than "
                "calls, to answer in. Raise max_turns or lower max_calls."
            )
        return self
