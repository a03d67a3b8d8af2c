"""The rules of the scaffold: a code for each, and the sentence that describes a violation.

Lenient mode (RL) records violations and continues; strict mode (data generation) rejects a trajectory with a violation
in `STRICT`.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.violation_codes import Code
from rubricem_env.scaffold.grammar import DEFAULT, MAX_SCAFFOLDS, grammar_of

__all__ = ["Code"]

_SENTENCES: Mapping[Code, str] = MappingProxyType(
    {
        Code.ALIAS_TAG: (
            "turn {turn} writes {value}, another name for a tag of the scaffold; it is read as that tag. Write "
            "the canonical name."
        ),
        Code.TAG_CASE: "turn {turn} writes {value}; tags are lower case. Write it in lower case.",
        Code.BAD_ATTRIBUTE: (
            'turn {turn} has malformed attributes in {value}; the form is name="value", each name once. Quote '
            "every value."
        ),
        Code.UNCLOSED_TAG: (
            "turn {turn} opens {value} and does not close it; a block closes before the next one begins. Write "
            "its closing tag."
        ),
        Code.UNEXPECTED_CLOSE: (
            "turn {turn} closes {value}, which is not open there. Remove it, or open the block first."
        ),
        Code.NESTED_TAG: (
            "turn {turn} has {value} inside another block, where it is plain text. Close that block first."
        ),
        Code.MISPLACED_TAG: "turn {turn} has {value} outside the block that it belongs to. Move it inside.",
        Code.TAG_IN_THINK: (
            "turn {turn} has {value} inside <think>, where nothing counts as structure. Leave tags out of the thought."
        ),
        Code.DUPLICATE_BLOCK: "turn {turn} has more than one {value}; one is enough. Merge them.",
        Code.LOOKALIKE_TAG: (
            "turn {turn} has {value}, which looks like a tag of the scaffold but is not one. Write the plain tag, "
            "or leave it out."
        ),
        Code.INVALID_UNICODE: (
            "turn {turn} holds a broken character ({value}); text is valid Unicode. Check how the tokens were decoded."
        ),
        Code.CONTROL_CHARACTER: (
            "turn {turn} holds the invisible control character {value}; text is visible characters, spaces and "
            "line breaks. Remove it."
        ),
        Code.SELF_WRITTEN_TOOL_OUTPUT: (
            "turn {turn} writes {value} itself; only the environment writes tool output. Everything from there on "
            "is cut: stop after </call_tool>."
        ),
        Code.SELF_WRITTEN_SNIPPET: (
            "turn {turn} writes {value} itself; snippets come from tools and a self-written one cannot be cited. "
            "Search for it."
        ),
        Code.NO_ACTION: (
            "turn {turn} ends without an action; a turn ends with exactly one of {actions}. Call a tool or answer."
        ),
        Code.TWO_ACTIONS: (
            "turn {turn} has a second action, {value}; only the first one counts. Stop after the first closing tag."
        ),
        Code.TEXT_AFTER_ACTION: (
            "turn {turn} continues after its action ({value}); that text is cut. Stop right after {actions}."
        ),
        Code.MISSING_TOOL_NAME: (
            'turn {turn} calls a tool without naming it ({value}). Write <call_tool name="{tool}">query</call_tool>.'
        ),
        Code.EMPTY_QUERY: "turn {turn} calls {value} with an empty query. Write the query between the tags.",
        Code.EMPTY_ANSWER: "turn {turn} closes an empty answer. Write the answer between <{answer}> and </{answer}>.",
        Code.MISSING_THINK: (
            "turn {turn} does not begin with <think> (it begins with {value}). Begin every turn with a thought."
        ),
        Code.MISSING_PLAN: (
            "turn {turn} acts without a <structured_plan>; the first turn plans before it searches. Write the "
            "plan first."
        ),
        Code.MISSING_PLAN_SECTION: (
            "turn {turn} has a plan without {value}; the first plan has <deep_analysis>, <rubric> and "
            "<research_plan>. Add the section."
        ),
        Code.MISSING_STATE_EVALUATION: (
            "turn {turn} follows a tool result without a <state_evaluation>. Weigh the evidence before the next action."
        ),
        Code.MISSING_REVIEW: (
            "turn {turn} opens <answer> before <review>; the order is plan, research, review, answer. Write "
            "<review> first."
        ),
        Code.MISSING_REVIEW_SECTION: (
            "turn {turn} has a review without {value}; a review has <rubric_review> and <writing_plan>. Add the "
            "section."
        ),
        Code.MISSING_BLOCK: (
            "turn {turn} goes on without {value}; the order is {order}. Write it first, and stop after {actions}."
        ),
        Code.MISSING_SECTION: "turn {turn} lacks {value} in the block that it belongs to. Add the section.",
        Code.ANSWER_IN_FIRST_TURN: (
            "turn {turn} answers without having searched; the first turn ends with a tool call. Search first."
        ),
        Code.STAGE_ORDER: ("turn {turn} has {value} out of order; the order is {order}. Move it to its place."),
        Code.EMPTY_QUESTION: "the trajectory's question is empty; an episode is about a question. Fill in 'question'.",
        Code.MISSING_ANSWER: (
            "the trajectory ends at turn {turn} without a closed answer. Write <{answer}>...</{answer}>."
        ),
        Code.CONSECUTIVE_TOOL_ERRORS: (
            "turn {turn} follows {value} tool errors in a row; two are too many for training data. Ask something "
            "else, or another tool, after the first."
        ),
        Code.EMPTY_CITATION: (
            "turn {turn} has an empty citation ({value}); a citation has an id and the claim it supports. Write "
            '<cite id="S_1">claim</cite>.'
        ),
        Code.UNKNOWN_CITATION: (
            "turn {turn} cites {value}, which no tool has shown in this episode. Cite an id of a shown snippet."
        ),
    }
)
"""What is wrong and what to do; its turn, its value and the scaffold's words are filled in."""


STRICT = frozenset(Code) - {
    Code.ALIAS_TAG,
    Code.TAG_CASE,
    Code.BAD_ATTRIBUTE,
    Code.TAG_IN_THINK,
    Code.DUPLICATE_BLOCK,
    Code.LOOKALIKE_TAG,
    Code.INVALID_UNICODE,
    Code.CONTROL_CHARACTER,
    Code.TEXT_AFTER_ACTION,
}
"""The violations for which strict mode (data generation) rejects a trajectory."""


@lru_cache(maxsize=MAX_SCAFFOLDS)
def strict_codes(scaffold: Scaffold) -> frozenset[Code]:
    """Those of `STRICT` that the scaffold does not accept."""
    return STRICT - frozenset(scaffold.lenient)


@lru_cache(maxsize=MAX_SCAFFOLDS)
def _sentences_of(scaffold: Scaffold) -> Mapping[Code, str]:
    """The sentences with the scaffold's words; turn and value are still open."""
    grammar = grammar_of(scaffold)
    words = {
        "actions": " or ".join(f"</{tag}>" for tag in grammar.actions),
        "answer": grammar.answer,
        "order": ", ".join(scaffold.names),
        "tool": next(iter(scaffold.tools), "tool"),
        "turn": "{turn}",
        "value": "{value}",
    }
    return {code: sentence.format(**words) for code, sentence in _SENTENCES.items()}


class Violation(NamedTuple):
    """One broken rule in one turn."""

    code: Code
    turn: int
    """The number of the turn, from 1. It is 0 for the trajectory as a whole."""
    message: str
    start: int = 0
    """The offset in the turn's text."""


def violation(code: Code, turn: int, value: str = "", start: int = 0, *, scaffold: Scaffold = DEFAULT) -> Violation:
    """A violation with its sentence; a long value is shortened, and control characters are shown as code points."""
    shown = value if len(value) <= 60 else value[:57] + "..."
    printable = "".join(char if char.isprintable() else f"U+{ord(char):04X}" for char in shown)
    return Violation(code, turn, _sentences_of(scaffold)[code].format(turn=turn, value=printable), start)
