"""How a judge model is asked: temperature, tokens, retries, and which checks its replies pass."""

from typing import Annotated

from pydantic import Field

from rubricem_env.domain.settings import Settings
from rubricem_env.judge.model.shown_attempt import GROUP_TOKENS, LEAST_TOKENS, TRAJECTORY_TOKENS
from rubricem_env.llm.limits.retry import RetryPolicy


class AskSettings(Settings):
    """How a judge model is asked."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    max_output_tokens: Annotated[int, Field(ge=256)] = 16_384
    """Thoughts included, where the model has them."""
    retry: RetryPolicy = RetryPolicy()
    """The retries of proposals, full scorings and reflections: five of them (section C.4)."""
    fallback_retry: RetryPolicy = RetryPolicy(attempts=2, deadline=60.0)
    """The retries of the reduced call for the answer alone, which follows them."""
    seed: int | None = None
    trajectory_tokens: Annotated[int, Field(ge=LEAST_TOKENS)] = TRAJECTORY_TOKENS
    """How many tokens are shown of one attempt, for scores and reflections.

    Longer ones are shortened: pages first, then the agent's thoughts and calls, then its blocks, such as state
    evaluations, then the snippets that the answer cites, and the answer last. Lower it where the judge's context is
    small."""
    group_tokens: Annotated[int, Field(ge=1_024)] = GROUP_TOKENS
    """How many tokens are shown of all attempts of a group together, for proposals. Each gets an equal part."""
    requires_quote: bool = True
    """A quality for which the judge can quote nothing scores 0; criteria of absence ("avoids ...") are exempt."""
    gate: bool = True
    """Refuse proposed rubrics that a page or an attempt may have dictated (`refuse_rubric`).

    False is for measurements.
    """
    second_reader: bool = False
    """Ask the judge as well what each new rubric and reflection is for, in a call of its own. What does not describe
    research on the question stays out, and so does what the judge gives no answer for."""
