"""The tags of the scaffold, as data (paper, section B.1; the appendix's names are the canonical ones)."""

from enum import Enum
from types import MappingProxyType
from typing import NamedTuple


class Role(Enum):
    """What a tag does to the text around it."""

    THOUGHT = "thought"
    """Opaque: nothing inside it is structure."""
    BLOCK = "block"
    """A part of a turn: plan, state evaluation, review."""
    SECTION = "section"
    """A part of one kind of block."""
    ACTION = "action"
    """What the turn does; the turn ends where it closes."""
    INLINE = "inline"
    """A mark inside the answer."""
    FOREIGN = "foreign"
    """The environment's to write, never the policy's."""


class Tag(NamedTuple):
    """One tag, by its canonical name."""

    name: str
    role: Role
    parent: str = ""
    """For a section, the block that it belongs to."""
    aliases: tuple[str, ...] = ()


THINK = "think"
PLAN = "structured_plan"
STATE_EVALUATION = "state_evaluation"
REVIEW = "review"
CALL_TOOL = "call_tool"
ANSWER = "answer"
CITE = "cite"
TOOL_OUTPUT = "tool_output"
SNIPPET = "snippet"

GRAMMAR: tuple[Tag, ...] = (
    Tag(THINK, Role.THOUGHT, aliases=("scratchpad",)),
    Tag(PLAN, Role.BLOCK),
    Tag("deep_analysis", Role.SECTION, PLAN, aliases=("analysis",)),
    Tag("rubric", Role.SECTION, PLAN, aliases=("rubrics",)),
    Tag("research_plan", Role.SECTION, PLAN),
    Tag(STATE_EVALUATION, Role.BLOCK),
    Tag(REVIEW, Role.BLOCK),
    Tag("rubric_review", Role.SECTION, REVIEW, aliases=("rubrics_review",)),
    Tag("writing_plan", Role.SECTION, REVIEW),
    Tag(CALL_TOOL, Role.ACTION),
    Tag(ANSWER, Role.ACTION),
    Tag(CITE, Role.INLINE, ANSWER),
    Tag(TOOL_OUTPUT, Role.FOREIGN),
    Tag(SNIPPET, Role.FOREIGN),
)

TAGS = MappingProxyType({tag.name: tag for tag in GRAMMAR})
CANONICAL = MappingProxyType({name: tag.name for tag in GRAMMAR for name in (tag.name, *tag.aliases)})
"""Every name that is read as structure, to its canonical one."""

SECTIONS = MappingProxyType(
    {
        block: tuple(tag.name for tag in GRAMMAR if tag.parent == block and tag.role is Role.SECTION)
        for block in (PLAN, REVIEW)
    }
)
"""The sections that a whole plan and a whole review have, in order."""

RESERVED = (*CANONICAL, "reference_examples", "reflection_rubrics", "reflection_takeaways")
"""Names that foreign text must not bring in: the scaffold's, and the frames of the bank and of reflections."""
