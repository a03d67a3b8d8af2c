"""What the tiny policy was taught to begin with, as the environments of the examples show it."""

from rubricem_agent.policy import TINY, TINY_SYSTEM
from rubricem_agent.prompting import AgentPrompt, prompt_from_text
from rubricem_env.domain import Query

PROMPT = AgentPrompt(TINY_SYSTEM, prompt_from_text(TINY, TINY_SYSTEM).hash)


def prompt_of(query: Query) -> str:
    """The question, and after an empty line the form of its answer."""
    return PROMPT.opening(query).user
