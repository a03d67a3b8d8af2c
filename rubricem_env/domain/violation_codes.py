"""The names of the violations of a scaffold."""

from enum import StrEnum


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
    MISSING_BLOCK = "missing_block"
    MISSING_SECTION = "missing_section"
    ANSWER_IN_FIRST_TURN = "answer_in_first_turn"
    STAGE_ORDER = "stage_order"
    # Of the whole trajectory:
    EMPTY_QUESTION = "empty_question"
    MISSING_ANSWER = "missing_answer"
    CONSECUTIVE_TOOL_ERRORS = "consecutive_tool_errors"
    EMPTY_CITATION = "empty_citation"
    UNKNOWN_CITATION = "unknown_citation"
