"""The grammar of a scaffold: every tag with its role.

The tags of deep research are those of the paper's section B.1; the appendix's names are the canonical ones.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from rubricem_env.domain.scaffold import CALL_TOOL, CITE, KEPT_TAGS, SNIPPET, THINK, TOOL_OUTPUT, Scaffold
from rubricem_env.domain.stage_set import DEEP_RESEARCH

__all__ = ["CALL_TOOL", "CITE", "SNIPPET", "THINK", "TOOL_OUTPUT"]

Role = Literal["thought", "block", "section", "action", "inline", "foreign"]
"""What a tag does.

It is an opaque thought, a part of a turn, a part of a block, what ends the turn, markup inside the answer, or text that
only the environment writes.
"""
PLAN = "structured_plan"
STATE_EVALUATION = "state_evaluation"
REVIEW = "review"
ANSWER = "answer"
"""The blocks of deep research."""
DEFAULT: Scaffold = DEEP_RESEARCH.scaffold
MAX_SCAFFOLDS = 64
"""How many scaffolds are kept compiled."""


class Grammar(NamedTuple):
    """The tags of a scaffold, as a reader needs them."""

    roles: Mapping[str, Role]
    """Every tag by its canonical name, with its role."""
    sections: Mapping[str, tuple[str, ...]]
    """The sections of a complete block, in order."""
    parents: Mapping[str, str]
    """The block of each section."""
    canonical: Mapping[str, str]
    """Every name that is read as structure, with its canonical name."""
    reserved: tuple[str, ...]
    """Tag names that foreign text must not contain: those of the scaffold, of the bank and of reflections."""
    actions: tuple[str, ...]
    """The tags that end a turn when they close, the answer's last."""
    answer: str
    """The tag that ends the episode."""

    @property
    def alternatives(self) -> str:
        """A pattern for any name that is read as structure, the longest first."""
        return alternatives(self.canonical)


def alternatives(names: Mapping[str, str] | tuple[str, ...]) -> str:
    """A pattern for any of the names, the longest first."""
    return "|".join(sorted(names, key=len, reverse=True))


@lru_cache(maxsize=MAX_SCAFFOLDS)
def grammar_of(scaffold: Scaffold) -> Grammar:
    """The grammar of a scaffold."""
    calls: tuple[str, ...] = (CALL_TOOL,) if scaffold.calls_tools else ()
    roles: dict[str, Role] = {THINK: "thought"}
    for stage in scaffold.stages[:-1]:
        for tag in (tag for tag in stage.makers if tag != CALL_TOOL):
            roles[tag] = "block"
            roles |= dict.fromkeys(scaffold.sections.get(tag, ()), "section")
    actions = (*calls, scaffold.answer_tag)
    roles |= dict.fromkeys(actions, "action")
    roles |= {CITE: "inline"} if scaffold.cites else {}
    roles |= {TOOL_OUTPUT: "foreign", SNIPPET: "foreign"}
    aliases = scaffold.aliases
    canonical = {written: name for name in roles for written in (name, aliases.get(name, name))}
    return Grammar(
        roles=MappingProxyType(roles),
        sections=MappingProxyType(dict(scaffold.sections)),
        parents=MappingProxyType({section: tag for tag, names in scaffold.sections.items() for section in names}),
        canonical=MappingProxyType(canonical),
        reserved=tuple(dict.fromkeys((*canonical, *KEPT_TAGS, CALL_TOOL, CITE))),
        actions=actions,
        answer=scaffold.answer_tag,
    )


_OF_DEFAULT = grammar_of(DEFAULT)
GRAMMAR = _OF_DEFAULT.roles
SECTIONS = _OF_DEFAULT.sections
PARENTS = _OF_DEFAULT.parents
CANONICAL = _OF_DEFAULT.canonical
RESERVED = _OF_DEFAULT.reserved
"""The same of deep research."""
