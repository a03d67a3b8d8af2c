"""The agent's opening: the rules as system message; references, question and form of the answer as user message."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from rubricem_agent.policy.base import Opening
from rubricem_agent.prompting.library import Prompt, fill, prompt_from_text, read_prompt
from rubricem_env.domain.query import Query
from rubricem_env.tools.catalogue import FETCH_PAGE_SPEC, GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC
from rubricem_env.tools.spec import ToolSpec

_SPECS: Mapping[str, ToolSpec] = MappingProxyType(
    {spec.name: spec for spec in (GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC, FETCH_PAGE_SPEC)}
)


class PromptStyle(StrEnum):
    """Which rules the agent works by; the value is the name of the prompt file."""

    SCAFFOLD = "agent"
    """Plan, research, review, answer, with rubrics of its own."""
    REACT = "react"
    """Think and act with the same tools: the paper's comparison."""


class AgentPrompt(NamedTuple):
    """The rules for given tools, ready for any question."""

    system: str
    hash: str
    """Of the rules, the tools and the three lines on form together: it changes when any of them does."""

    def opening(self, query: Query, *, references: str = "") -> Opening:
        """The user message is the references, where there are any, then the question, then the form that is asked for."""
        form = read_prompt(f"format_{query.answer_format}").text.strip()
        parts = (references.strip(), query.question.strip(), form)
        return Opening(self.system, "\n\n".join(part for part in parts if part))


def agent_prompt(tools: Sequence[str], *, style: PromptStyle = PromptStyle.SCAFFOLD) -> AgentPrompt:
    """The rules with those tools described, in the order given.

    Tools that this project does not know are listed by name.
    """
    rules = read_prompt(style.value)
    system = fill(rules.section("system"), {"tools": "\n".join(_describe(name) for name in tools)})
    forms: list[Prompt] = [read_prompt(f"format_{form}") for form in ("exact", "short", "long")]
    return AgentPrompt(system, prompt_from_text(style.value, "\0".join((system, *(form.text for form in forms)))).hash)


def _describe(name: str) -> str:
    call = f'<call_tool name="{name}">query</call_tool>'
    spec = _SPECS.get(name)
    if spec is None:
        return f"- {name}. Call it so: {call}"
    lines = [f"- {name}: {spec.description} Call it so: {call}"]
    if spec.parameters:
        lines.append("  Optional attributes of the opening tag:")
        lines += [f"  - {parameter.name}: {parameter.description}" for parameter in spec.parameters]
    return "\n".join(lines)
