"""The tags of the scaffold (paper, section B.1; the appendix's names are the canonical ones), and its rules.

Each violation has a code for machines and a sentence for people: turn, rule, value and what to do. Lenient mode (RL)
records violations and continues; strict mode (data generation) rejects a trajectory with a violation marked strict.
"""

from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

Role = Literal["thought", "block", "section", "action", "inline", "foreign"]
"""What a tag does: an opaque thought, a part of a turn, a part of a block, what ends the turn, markup inside the answer,
or text that only the environment writes."""


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
    Tag(THINK, "thought", aliases=("scratchpad",)),
    Tag(PLAN, "block"),
    Tag("deep_analysis", "section", PLAN, aliases=("analysis",)),
    Tag("rubric", "section", PLAN, aliases=("rubrics",)),
    Tag("research_plan", "section", PLAN),
    Tag(STATE_EVALUATION, "block"),
    Tag(REVIEW, "block"),
    Tag("rubric_review", "section", REVIEW, aliases=("rubrics_review",)),
    Tag("writing_plan", "section", REVIEW),
    Tag(CALL_TOOL, "action"),
    Tag(ANSWER, "action"),
    Tag(CITE, "inline", ANSWER),
    Tag(TOOL_OUTPUT, "foreign"),
    Tag(SNIPPET, "foreign"),
)

TAGS = MappingProxyType({tag.name: tag for tag in GRAMMAR})
CANONICAL = MappingProxyType({name: tag.name for tag in GRAMMAR for name in (tag.name, *tag.aliases)})
"""Every name that is read as structure, with its canonical name."""

SECTIONS = MappingProxyType(
    {
        block: tuple(tag.name for tag in GRAMMAR if tag.parent == block and tag.role == "section")
        for block in (PLAN, REVIEW)
    }
)
"""The sections of a complete plan and of a complete review, in order."""

RESERVED = (*CANONICAL, "reference_examples", "reflection_rubrics", "reflection_takeaways")
"""Tag names that foreign text must not contain: those of the scaffold, of the bank and of reflections."""


class ValidationMode(Enum):
    """Whether violations reject a trajectory."""

    STRICT = "strict"
    LENIENT = "lenient"


class Code(StrEnum):
    """Names of violations; part of the interface, never renamed."""

    # one emission
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
    # a turn in its trajectory
    MISSING_THINK = "missing_think"
    MISSING_PLAN = "missing_plan"
    MISSING_PLAN_SECTION = "missing_plan_section"
    MISSING_STATE_EVALUATION = "missing_state_evaluation"
    MISSING_REVIEW = "missing_review"
    MISSING_REVIEW_SECTION = "missing_review_section"
    ANSWER_IN_FIRST_TURN = "answer_in_first_turn"
    STAGE_ORDER = "stage_order"
    # the whole trajectory
    EMPTY_QUESTION = "empty_question"
    MISSING_ANSWER = "missing_answer"
    CONSECUTIVE_TOOL_ERRORS = "consecutive_tool_errors"
    EMPTY_CITATION = "empty_citation"
    UNKNOWN_CITATION = "unknown_citation"


class Rule(NamedTuple):
    """What a code means. `{turn}` and `{value}` are filled in; `{value}` is shortened by the caller."""

    sentence: str
    strict: bool
    """Whether strict mode rejects a trajectory for it."""
    ours: bool = True
    """False for the four rejection reasons that the paper lists; True where the project adds its own."""


RULES = MappingProxyType(
    {
        Code.ALIAS_TAG: Rule("turn {turn} writes {value}, another name for a tag of the scaffold; it is read as that tag. Write the canonical name.", False),
        Code.TAG_CASE: Rule("turn {turn} writes {value}; tags are lower case. Write it in lower case.", False),
        Code.BAD_ATTRIBUTE: Rule('turn {turn} has malformed attributes in {value}; the form is name="value", each name once. Quote every value.', False),
        Code.UNCLOSED_TAG: Rule("turn {turn} opens {value} and does not close it; a block closes before the next one begins. Write its closing tag.", True, False),
        Code.UNEXPECTED_CLOSE: Rule("turn {turn} closes {value}, which is not open there. Remove it, or open the block first.", True, False),
        Code.NESTED_TAG: Rule("turn {turn} has {value} inside another block, where it is plain text. Close that block first.", True, False),
        Code.MISPLACED_TAG: Rule("turn {turn} has {value} outside the block that it belongs to. Move it inside.", True, False),
        Code.TAG_IN_THINK: Rule("turn {turn} has {value} inside <think>, where nothing counts as structure. Leave tags out of the thought.", False),
        Code.DUPLICATE_BLOCK: Rule("turn {turn} has more than one {value}; one is enough. Merge them.", False),
        Code.LOOKALIKE_TAG: Rule("turn {turn} has {value}, which looks like a tag of the scaffold but is not one. Write the plain tag, or leave it out.", False),
        Code.INVALID_UNICODE: Rule("turn {turn} holds a broken character ({value}); text is valid Unicode. Check how the tokens were decoded.", False),
        Code.CONTROL_CHARACTER: Rule("turn {turn} holds the invisible control character {value}; text is visible characters, spaces and line breaks. Remove it.", False),
        Code.SELF_WRITTEN_TOOL_OUTPUT: Rule("turn {turn} writes {value} itself; only the environment writes tool output. Everything from there on is cut: stop after </call_tool>.", True),
        Code.SELF_WRITTEN_SNIPPET: Rule("turn {turn} writes {value} itself; snippets come from tools and a self-written one cannot be cited. Search for it.", True),
        Code.NO_ACTION: Rule("turn {turn} ends without an action; a turn ends with exactly one of </call_tool> or </answer>. Call a tool or answer.", True, False),
        Code.TWO_ACTIONS: Rule("turn {turn} has a second action, {value}; only the first one counts. Stop after the first closing tag.", True),
        Code.TEXT_AFTER_ACTION: Rule("turn {turn} continues after its action ({value}); that text is cut. Stop right after </call_tool> or </answer>.", False),
        Code.MISSING_TOOL_NAME: Rule('turn {turn} calls a tool without naming it ({value}). Write <call_tool name="google_search">query</call_tool>.', True, False),
        Code.EMPTY_QUERY: Rule("turn {turn} calls {value} with an empty query. Write the query between the tags.", True, False),
        Code.EMPTY_ANSWER: Rule("turn {turn} closes an empty answer. Write the answer between <answer> and </answer>.", True),
        Code.MISSING_THINK: Rule("turn {turn} does not begin with <think> (it begins with {value}). Begin every turn with a thought.", True),
        Code.MISSING_PLAN: Rule("turn {turn} acts without a <structured_plan>; the first turn plans before it searches. Write the plan first.", True, False),
        Code.MISSING_PLAN_SECTION: Rule("turn {turn} has a plan without {value}; the first plan has <deep_analysis>, <rubric> and <research_plan>. Add the section.", True, False),
        Code.MISSING_STATE_EVALUATION: Rule("turn {turn} follows a tool result without a <state_evaluation>. Weigh the evidence before the next action.", True, False),
        Code.MISSING_REVIEW: Rule("turn {turn} opens <answer> before <review>; the order is plan, research, review, answer. Write <review> first.", True),
        Code.MISSING_REVIEW_SECTION: Rule("turn {turn} has a review without {value}; a review has <rubric_review> and <writing_plan>. Add the section.", True),
        Code.ANSWER_IN_FIRST_TURN: Rule("turn {turn} answers without having searched; the first turn ends with a tool call. Search first.", True),
        Code.STAGE_ORDER: Rule("turn {turn} has {value} out of order; the order is plan, research, review, answer. Move it to its place.", True),
        Code.EMPTY_QUESTION: Rule("the trajectory's question is empty; an episode is about a question. Fill in 'question'.", True),
        Code.MISSING_ANSWER: Rule("the trajectory ends at turn {turn} without a closed answer. Write <answer>...</answer>.", True, False),
        Code.CONSECUTIVE_TOOL_ERRORS: Rule("turn {turn} follows {value} tool errors in a row; two are too many for training data. Ask something else, or another tool, after the first.", True, False),
        Code.EMPTY_CITATION: Rule('turn {turn} has an empty citation ({value}); a citation has an id and the claim it supports. Write <cite id="S_1">claim</cite>.', True),
        Code.UNKNOWN_CITATION: Rule("turn {turn} cites {value}, which no tool has shown in this episode. Cite an id of a shown snippet.", True),
    }
)  # fmt: skip


class Violation(NamedTuple):
    """One broken rule in one turn."""

    code: Code
    turn: int
    """From 1; 0 for the trajectory as a whole."""
    message: str
    start: int = 0
    """Where in the turn's text."""


def violation(code: Code, turn: int, value: str = "", start: int = 0) -> Violation:
    """A violation with its sentence; a long value is shortened, and control characters are shown as code points."""
    shown = value if len(value) <= 60 else value[:57] + "..."
    printable = "".join(char if char.isprintable() else f"U+{ord(char):04X}" for char in shown)
    return Violation(code, turn, RULES[code].sentence.format(turn=turn, value=printable), start)


def rejecting(violations: tuple[Violation, ...], mode: ValidationMode) -> tuple[Violation, ...]:
    """The violations for which this mode rejects the trajectory; none in lenient mode."""
    return tuple(found for found in violations if RULES[found.code].strict) if mode is ValidationMode.STRICT else ()
