"""Prompts as files: each is known by its name and by the hash that goes with every result it makes.

A prompt file is Markdown in `prompts/`. A line `<!-- section: NAME -->` begins a named section; `{{name}}` is a
place to fill. Filling looks at the file's own text alone: what is filled in is never read as a place again.

The agent's opening: the rules as system message; references, question and form of the answer as user message.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import resources
from types import MappingProxyType
from typing import NamedTuple

from rubricem_agent.policy.base import Opening
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.tools.spec import FETCH_PAGE_SPEC, GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC, ToolSpec

_SECTION = re.compile(r"^<!-- section: ([a-z_]+) -->\n", re.MULTILINE)
_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")
HASH_LENGTH = 16


class AgentPromptFile(NamedTuple):
    """One prompt file."""

    name: str
    text: str
    hash: str
    """The start of the SHA-256 of the whole file."""

    def section(self, name: str) -> str:
        """The text of one section, stripped.

        Raises:
            ConfigError: the file has no such section.
        """
        parts = _SECTION.split(self.text)
        sections = dict(zip(parts[1::2], parts[2::2], strict=True))
        if name not in sections:
            has = ", ".join(sections) or "none"
            raise ConfigError(f"the prompt {self.name!r} has no section {name!r}; it has: {has}.")
        return sections[name].strip()


def read_prompt(name: str) -> AgentPromptFile:
    """The prompt file `prompts/NAME.md`.

    Raises:
        ConfigError: there is none of that name.
    """
    folder = resources.files("rubricem_agent").joinpath("prompts")
    file = folder.joinpath(f"{name}.md")
    if not file.is_file():
        known = ", ".join(sorted(entry.name.removesuffix(".md") for entry in folder.iterdir()))
        raise ConfigError(f"there is no prompt {name!r}; the prompts are: {known}.")
    return prompt_from_text(name, file.read_text(encoding="utf-8"))


def prompt_from_text(name: str, text: str) -> AgentPromptFile:
    """A prompt that is no file of ours, such as a user's own."""
    return AgentPromptFile(name, text, hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH])


def fill(text: str, parts: Mapping[str, str]) -> str:
    """The text with every place filled, in one pass.

    Raises:
        ConfigError: a place has no part, or a part has no place.
    """
    places = set(_PLACE.findall(text))
    if places != set(parts):
        missing, unknown = sorted(places - set(parts)), sorted(set(parts) - places)
        raise ConfigError(f"the prompt's places do not match what was given: missing {missing}, unknown {unknown}.")
    return _PLACE.sub(lambda found: parts[found[1]], text)


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
    forms: list[AgentPromptFile] = [read_prompt(f"format_{form}") for form in ("exact", "short", "long")]
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
