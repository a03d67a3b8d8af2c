"""The tags of the scaffold (paper, section B.1; the appendix's names are the canonical ones)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Role = Literal["thought", "block", "section", "action", "inline", "foreign"]
"""What a tag does.

It is an opaque thought, a part of a turn, a part of a block, what ends the turn, markup inside the answer, or text that
only the environment writes.
"""
THINK = "think"
PLAN = "structured_plan"
STATE_EVALUATION = "state_evaluation"
REVIEW = "review"
CALL_TOOL = "call_tool"
ANSWER = "answer"
CITE = "cite"
TOOL_OUTPUT = "tool_output"
SNIPPET = "snippet"
GRAMMAR: Mapping[str, Role] = MappingProxyType(
    {
        THINK: "thought",
        PLAN: "block",
        "deep_analysis": "section",
        "rubric": "section",
        "research_plan": "section",
        STATE_EVALUATION: "block",
        REVIEW: "block",
        "rubric_review": "section",
        "writing_plan": "section",
        CALL_TOOL: "action",
        ANSWER: "action",
        CITE: "inline",
        TOOL_OUTPUT: "foreign",
        SNIPPET: "foreign",
    }
)
"""Every tag by its canonical name, with its role."""
SECTIONS = MappingProxyType(
    {PLAN: ("deep_analysis", "rubric", "research_plan"), REVIEW: ("rubric_review", "writing_plan")}
)
"""The sections of a complete plan and of a complete review, in order."""
PARENTS = MappingProxyType({section: block for block, sections in SECTIONS.items() for section in sections})
_ALIASES = {THINK: "scratchpad", "deep_analysis": "analysis", "rubric": "rubrics", "rubric_review": "rubrics_review"}
CANONICAL = MappingProxyType({written: name for name in GRAMMAR for written in (name, _ALIASES.get(name, name))})
"""Every name that is read as structure, with its canonical name."""
RESERVED = (*CANONICAL, "reference_examples", "reflection_rubrics", "reflection_takeaways")
"""Tag names that foreign text must not contain: those of the scaffold, of the bank and of reflections."""
