"""Reads prompt files, and writes the agent's opening: its system message and user message.

A prompt file is Markdown in `prompts/`, known by its name and its hash, which is recorded with every result. A line
`<!-- section: NAME -->` begins a named section; `{{name}}` is a placeholder. Only placeholders of the file itself are
filled, never those in the inserted text.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from rubricem_agent.policy.base import Opening
from rubricem_env.domain.errors import ConfigError, ToolError
from rubricem_env.domain.inputs import read_prompt_texts, refuse_placeholders
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, is_shipped, stage_set_folder
from rubricem_env.domain.trajectory import Query
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.untrusted import neutralize
from rubricem_env.tools.base import LocalToolbox, Toolbox
from rubricem_env.tools.spec import RUN_SQL, SHIPPED_SPECS, ToolSpec, check_tool_name

_SECTION = re.compile(r"^<!-- section: ([a-z_]+) -->\n", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
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
        sections = dict(_sections(self.text))
        if name not in sections:
            has = ", ".join(filter(None, sections)) or "none"
            raise ConfigError(f"the prompt {self.name!r} has no section {name!r}; it has: {has}.")
        return sections[name].strip()


def read_prompt(name: str) -> AgentPromptFile:
    """The prompt file `prompts/NAME.md`.

    Raises:
        ConfigError: there is no file of that name.
    """
    folder = resources.files("rubricem_agent").joinpath("prompts")
    file = folder.joinpath(f"{name}.md")
    if not file.is_file():
        known = ", ".join(sorted(entry.name.removesuffix(".md") for entry in folder.iterdir()))
        raise ConfigError(f"there is no prompt {name!r}; the prompts are: {known}.")
    return prompt_from_text(name, file.read_text(encoding="utf-8"))


def prompt_from_text(name: str, text: str) -> AgentPromptFile:
    """A prompt from other text, such as a user's own file."""
    return AgentPromptFile(name, text, hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH])


_CLOSED_BOOK = "closed_book"
AGENT_PROMPTS = (
    "agent",
    "react",
    _CLOSED_BOOK,
    "format_exact",
    "format_long",
    "format_short",
    "inject_cross",
    "inject_within",
    "reflection",
)
"""What a policy is told: its rules, the forms of answers, lessons before a question, and how to reflect."""
AgentPrompts = Mapping[str, AgentPromptFile]
"""The prompt files of `AGENT_PROMPTS` by name."""


def stage_prompts(stage_set: StageSet) -> AgentPrompts:
    """The prompts of a stage set: those of its folder, and the shared ones, which name its answer's tag."""
    tag = stage_set.scaffold.answer_tag
    prompts = {}
    for name in AGENT_PROMPTS:
        text = stage_set.prompts.get(name)
        if text is None:
            text = read_prompt(name).text.replace("<answer>", f"<{tag}>").replace("</answer>", f"</{tag}>")
        prompts[name] = prompt_from_text(name, text)
    return MappingProxyType(prompts)


SHIPPED_PROMPTS: AgentPrompts = stage_prompts(DEEP_RESEARCH)


def read_agent_prompts(folder: Path | None, stage_set: StageSet = DEEP_RESEARCH) -> AgentPrompts:
    """The agent's prompts in a folder, which has one of each of ours, with the same sections and placeholders.

    None is ours.

    Raises:
        ConfigError: a prompt is missing, cannot be read, or has other sections or placeholders.
    """
    if folder is None:
        return stage_prompts(stage_set)
    shared = resources.files("rubricem_agent").joinpath("prompts")
    ours = stage_prompts(stage_set)
    own = stage_set_folder(stage_set.name) if is_shipped(stage_set.name) else f"the stage set {stage_set.name}"
    shipped = f"{shared}, and agent.md from {own}"
    texts = read_prompt_texts(folder, AGENT_PROMPTS, shipped=shipped)
    for name, text in texts.items():
        _refuse_other_shape(f"the prompt {folder / name}.md", own=text, ours=ours[name].text)
    return MappingProxyType({name: prompt_from_text(name, text) for name, text in texts.items()})


def _sections(text: str) -> list[tuple[str, str]]:
    """The sections of a prompt by name; the whole text, named "", where it has none."""
    parts = _SECTION.split(text)
    return list(zip(parts[1::2], parts[2::2], strict=True)) or [("", text)]


def _refuse_other_shape(where: str, *, own: str, ours: str) -> None:
    """Raise ConfigError where a prompt has other sections than ours, or a section other placeholders."""
    written, wanted = _sections(own), _sections(ours)
    if sorted(name for name, _ in written) != sorted(name for name, _ in wanted):
        given, needed = (", ".join(name for name, _ in sections if name) or "none" for sections in (written, wanted))
        raise ConfigError(f"{where} has these sections: {given}; it needs each of ours once: {needed}.")
    texts = dict(written)
    for name, text in wanted:
        named = f"{where}, section {name}," if name else where
        refuse_placeholders(named, _PLACEHOLDER.findall(texts[name]), _PLACEHOLDER.findall(text), sign="{{{{{}}}}}")


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with every placeholder filled, in one pass.

    Raises:
        ConfigError: a placeholder has no value, or a value has no placeholder.
    """
    names = set(_PLACEHOLDER.findall(text))
    if names != set(values):
        missing = sorted(names - set(values))
        unknown = sorted(set(values) - names)
        raise ConfigError(f"the prompt's placeholders do not match the values: missing {missing}, unknown {unknown}.")
    return _PLACEHOLDER.sub(lambda match: values[match[1]], text)


_SPECS: Mapping[str, ToolSpec] = MappingProxyType({spec.name: spec for spec in SHIPPED_SPECS})


Style = Literal["scaffold", "react"]
"""How the agent works: in stages with rubrics of its own, or, as the paper compares, by thought and action alone."""


class AgentPrompt(NamedTuple):
    """The rules for given tools, ready for any question."""

    system: str
    hash: str
    """Of the rules, the tools and the three forms together; it changes with any of them."""
    prompts: AgentPrompts = SHIPPED_PROMPTS
    """The forms of answers are among them."""
    is_closed_book: bool = False
    """Whether there is no tool, so that the forms do not speak of searching."""
    scaffold: Scaffold = DEFAULT
    """The tags that the rules ask for."""

    def opening(self, query: Query, *, references: str = "") -> Opening:
        """The user message is the references, if any, then the question, then the required form."""
        if self.is_closed_book:
            form = self.prompts[_CLOSED_BOOK].section(query.answer_format.value)
        else:
            form = self.prompts[f"format_{query.answer_format}"].text.strip()
        parts = (references.strip(), neutralize(query.question.strip(), self.scaffold), form)
        return Opening(self.system, "\n\n".join(part for part in parts if part), self.scaffold)


def agent_prompt(
    tools: Sequence[str],
    *,
    style: Style = "scaffold",
    system: str = "",
    prompts: AgentPrompts = SHIPPED_PROMPTS,
    specs: Sequence[ToolSpec] = (),
    scaffold: Scaffold = DEFAULT,
) -> AgentPrompt:
    """The rules with those tools described, in the order given; or `system`, of a model that was trained with its own.

    Tools that this project does not know are listed by name. `specs` may say more of the others than what is shipped:
    that of `run_sql` names the tables. Without any tool the model answers from what it knows.

    Raises:
        ConfigError: a tool's name has other characters than a tool's.
    """
    has_tools = bool(tools) and scaffold.calls_tools
    if system:
        return AgentPrompt(system, prompt_from_text("own", system).hash, prompts, not has_tools, scaffold)
    if not scaffold.calls_tools:
        rules = prompts["agent"]
        return AgentPrompt(rules.section("system"), rules.hash, prompts, is_closed_book=True, scaffold=scaffold)
    if not tools:
        closed = prompts[_CLOSED_BOOK]
        return AgentPrompt(closed.section("system"), closed.hash, prompts, is_closed_book=True, scaffold=scaffold)
    rules = prompts["agent" if style == "scaffold" else style]
    known = {**_SPECS, **{spec.name: spec for spec in specs if spec.name in _SPECS}}
    system = fill(rules.section("system"), {"tools": "\n".join(_describe(name, known, scaffold) for name in tools)})
    forms = (prompts[f"format_{form}"].text for form in ("exact", "short", "long"))
    return AgentPrompt(
        system, prompt_from_text(rules.name, "\0".join((system, *forms))).hash, prompts, scaffold=scaffold
    )


def table_specs(toolbox: Toolbox) -> tuple[ToolSpec, ...]:
    """The description of `run_sql`, which names the tables that it reads; other tools are described as shipped."""
    specs = toolbox.specs if isinstance(toolbox, LocalToolbox) else ()
    return tuple(spec for spec in specs if spec.name == RUN_SQL)


def _describe(name: str, known: Mapping[str, ToolSpec], scaffold: Scaffold) -> str:
    try:
        check_tool_name(name)
    except ToolError as refusal:
        raise ConfigError(str(refusal)) from refusal
    call = f'<call_tool name="{name}">query</call_tool>'
    spec = known.get(name)
    if spec is None:
        return f"- {name}. Call it so: {call}"
    # The names of a user's columns may hold tags.
    lines = [f"- {name}: {neutralize(spec.description, scaffold)} Call it so: {call}"]
    if spec.parameters:
        is_optional = not any(parameter.is_required for parameter in spec.parameters)
        lines.append(f"  {'Optional attributes' if is_optional else 'Attributes'} of the opening tag:")
        lines += [
            f"  - {parameter.name}{' (required)' if parameter.is_required else ''}: {parameter.description}"
            for parameter in spec.parameters
        ]
    return "\n".join(lines)
