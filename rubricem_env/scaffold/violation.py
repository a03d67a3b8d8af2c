"""The rules of the scaffold: a code for each, and the sentence that describes a violation.

Lenient mode (RL) records violations and continues; strict mode (data generation) rejects a trajectory with a violation
in `STRICT`.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Code(StrEnum):
    """Names of violations. They are part of the interface and are never renamed."""

    # Of one emission:
    ALIAS_TAG = "alias_tag"
    TAG_CASE = "tag_case"
    BAD_ATTRIBUTE = "bad_attribute"
    UNCLOSED_TAG = "unclosed_tag"
    UNEXPECTED_CLOSE = "unexpected_close"
    NESTED_TAG = "nested_tag"
    MISPLACED_TAG = "misplaced_tag"
    TAG_IN_THINK = "tag_in_think"
    DUPLICATE_BLOCK = "duplicate_block"
    LOOKALIKE_TAG = "lookalike_tag"
    INVALID_UNICODE = "invalid_unicode"
    CONTROL_CHARACTER = "control_character"
    SELF_WRITTEN_TOOL_OUTPUT = "self_written_tool_output"
    SELF_WRITTEN_SNIPPET = "self_written_snippet"
    NO_ACTION = "no_action"
    TWO_ACTIONS = "two_actions"
    TEXT_AFTER_ACTION = "text_after_action"
    MISSING_TOOL_NAME = "missing_tool_name"
    EMPTY_QUERY = "empty_query"
    EMPTY_ANSWER = "empty_answer"
    # Of a turn in its trajectory:
    MISSING_THINK = "missing_think"
    MISSING_PLAN = "missing_plan"
    MISSING_PLAN_SECTION = "missing_plan_section"
    MISSING_STATE_EVALUATION = "missing_state_evaluation"
    MISSING_REVIEW = "missing_review"
    MISSING_REVIEW_SECTION = "missing_review_section"
    ANSWER_IN_FIRST_TURN = "answer_in_first_turn"
    STAGE_ORDER = "stage_order"
    # Of the whole trajectory:
    EMPTY_QUESTION = "empty_question"
    MISSING_ANSWER = "missing_answer"
    CONSECUTIVE_TOOL_ERRORS = "consecutive_tool_errors"
    EMPTY_CITATION = "empty_citation"
    UNKNOWN_CITATION = "unknown_citation"

    @property
    def sentence(self) -> str:
        """What is wrong and what to do; its turn and its value are filled in."""
        return _SENTENCES[self]


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
            "turn {turn} ends without an action; a turn ends with exactly one of </call_tool> or </answer>. Call "
            "a tool or answer."
        ),
        Code.TWO_ACTIONS: (
            "turn {turn} has a second action, {value}; only the first one counts. Stop after the first closing tag."
        ),
        Code.TEXT_AFTER_ACTION: (
            "turn {turn} continues after its action ({value}); that text is cut. Stop right after </call_tool> or "
            "</answer>."
        ),
        Code.MISSING_TOOL_NAME: (
            "turn {turn} calls a tool without naming it ({value}). Write <call_tool "
            'name="google_search">query</call_tool>.'
        ),
        Code.EMPTY_QUERY: "turn {turn} calls {value} with an empty query. Write the query between the tags.",
        Code.EMPTY_ANSWER: "turn {turn} closes an empty answer. Write the answer between <answer> and </answer>.",
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
        Code.ANSWER_IN_FIRST_TURN: (
            "turn {turn} answers without having searched; the first turn ends with a tool call. Search first."
        ),
        Code.STAGE_ORDER: (
            "turn {turn} has {value} out of order; the order is plan, research, review, answer. Move it to its place."
        ),
        Code.EMPTY_QUESTION: "the trajectory's question is empty; an episode is about a question. Fill in 'question'.",
        Code.MISSING_ANSWER: "the trajectory ends at turn {turn} without a closed answer. Write <answer>...</answer>.",
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


class Violation(NamedTuple):
    """One broken rule in one turn."""

    code: Code
    turn: int
    """The number of the turn, from 1. It is 0 for the trajectory as a whole."""
    message: str
    start: int = 0
    """The offset in the turn's text."""


def violation(code: Code, turn: int, value: str = "", start: int = 0) -> Violation:
    """A violation with its sentence; a long value is shortened, and control characters are shown as code points."""
    shown = value if len(value) <= 60 else value[:57] + "..."
    printable = "".join(char if char.isprintable() else f"U+{ord(char):04X}" for char in shown)
    return Violation(code, turn, code.sentence.format(turn=turn, value=printable), start)
