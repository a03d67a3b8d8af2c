"""The prompt of the examples: the rules of the scaffold as system message, then the question and its form."""

from rubricem_agent.prompting import agent_prompt
from rubricem_env.domain import Query
from rubricem_env.env import shipped_toolbox

PROMPT = agent_prompt(shipped_toolbox().names)
SYSTEM = PROMPT.system
"""For any model. The examples' own writers know the rules already: the tiny policy was trained on them."""


def prompt_of(query: Query) -> str:
    """The question, and after an empty line the form of its answer."""
    return PROMPT.opening(query).user
