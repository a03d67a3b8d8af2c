"""The settings of a policy."""

from typing import Annotated

from pydantic import Field

from rubricem_agent.model_names import SCRIPTED
from rubricem_env.domain.base import Frozen
from rubricem_env.llm.chat import Effort
from rubricem_env.llm.limits.limiter import Rates
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.llm.usage import SpendLimits
from rubricem_records.rollouts.sampling import Sampling


class PolicyConfig(Frozen):
    """A policy: its backend, sampling, rates and limits."""

    policy: str = SCRIPTED
    """`scripted`, `openai:MODEL@URL`, `vllm:MODEL@URL#FOLDER`, `gemini:MODEL` or `local:PATH`."""
    sampling: Sampling = Sampling()
    rates: Rates = Rates()
    ceilings: SpendLimits = SpendLimits()
    retry: RetryPolicy = RetryPolicy()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds without data after which a server counts as lost."""
    effort: Effort = ""
    """How much a served model thinks before a turn; empty leaves it to the provider."""
    local_rows: Annotated[int, Field(ge=1)] = 16
    """Conversations that a local model keeps in its cache at once."""
    local_max_length: Annotated[int, Field(ge=256)] = 26_624
    """Tokens of one conversation in a local model's cache; the paper's prompt and response together."""
