"""Why a teacher's trace is not trained on: every reason named, the paper's four apart from ours (section B.2)."""

from collections.abc import Iterator
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from rubricem_agent.data.generation import Trace
from rubricem_agent.data.normalize import unbalanced_thoughts
from rubricem_env.scaffold.reading import read_trajectory
from rubricem_env.scaffold.violations import Code, Mode, Violation


class PaperReason(StrEnum):
    """The four that the paper lists."""

    MISSING_ANSWER = "missing_answer"
    NO_TOOL_CALL = "no_tool_call"
    MISSING_STRUCTURE = "missing_structure"
    TOOL_ERRORS = "consecutive_tool_errors"


class OwnReason(StrEnum):
    """Ours that no violation of the scaffold stands for; any other of ours is named by its violation's code."""

    TEACHER_FAILED = "teacher_failed"
    """The model could not be reached, or refused."""
    UNBALANCED_THOUGHT = "unbalanced_thought"
    MISSING_RESEARCH_PLAN = "missing_research_plan"
    """The paper asks for the plan's three parts and rejects for two of them."""
    OVER_LENGTH = "over_length"
    """Longer than training takes: cutting it would lose the answer (choice A14)."""


PAPER_REASONS = MappingProxyType(
    {
        Code.MISSING_ANSWER: PaperReason.MISSING_ANSWER,
        Code.NO_ACTION: PaperReason.NO_TOOL_CALL,
        Code.MISSING_TOOL_NAME: PaperReason.NO_TOOL_CALL,
        Code.EMPTY_QUERY: PaperReason.NO_TOOL_CALL,
        Code.UNCLOSED_TAG: PaperReason.MISSING_STRUCTURE,
        Code.UNEXPECTED_CLOSE: PaperReason.MISSING_STRUCTURE,
        Code.NESTED_TAG: PaperReason.MISSING_STRUCTURE,
        Code.MISPLACED_TAG: PaperReason.MISSING_STRUCTURE,
        Code.MISSING_PLAN: PaperReason.MISSING_STRUCTURE,
        Code.MISSING_PLAN_SECTION: PaperReason.MISSING_STRUCTURE,
        Code.MISSING_STATE_EVALUATION: PaperReason.MISSING_STRUCTURE,
        Code.CONSECUTIVE_TOOL_ERRORS: PaperReason.TOOL_ERRORS,
    }
)


class Rejection(NamedTuple):
    """One reason against one trace."""

    reason: str
    is_paper: bool
    message: str
    """For a person: what, where, and the rule."""


_SCAFFOLD_ALONE = frozenset(
    {
        Code.MISSING_PLAN,
        Code.MISSING_PLAN_SECTION,
        Code.MISSING_STATE_EVALUATION,
        Code.MISSING_REVIEW,
        Code.MISSING_REVIEW_SECTION,
    }
)


def find_rejections(trace: Trace, *, max_unknown_citations: int = 0, flat: bool = False) -> tuple[Rejection, ...]:
    """All that speaks against a trace as the teacher wrote it; empty for one that is accepted.

    `max_unknown_citations` is how many ids an answer may cite that no tool has shown. A `flat` trace, think and act
    alone, owes no plan, no evaluation and no review.
    """
    if trace.failure:
        return (_own(OwnReason.TEACHER_FAILED, f"the teacher wrote no further turn: {trace.failure}"),)
    reading = read_trajectory(trace.trajectory)
    invents = len(reading.citations.unknown) > max_unknown_citations
    counted = (
        found
        for found in reading.rejects(Mode.STRICT)
        if (invents or found.code is not Code.UNKNOWN_CITATION) and not (flat and found.code in _SCAFFOLD_ALONE)
    )
    return (*_unbalanced(trace), *(_of_violation(found) for found in counted))


def over_length(num_tokens: int, limit: int) -> Rejection:
    """The reason against a sample that is too long for training."""
    return _own(OwnReason.OVER_LENGTH, f"the sample has {num_tokens:,} tokens; training takes up to {limit:,}.")


def _unbalanced(trace: Trace) -> Iterator[Rejection]:
    for segment in unbalanced_thoughts(trace.trajectory):
        opening = segment.text[:40].replace("\n", " ")
        message = f"the turn that begins with {opening!r} has a thought that is opened or closed alone."
        yield _own(OwnReason.UNBALANCED_THOUGHT, message)


def _of_violation(found: Violation) -> Rejection:
    if found.code is Code.MISSING_PLAN_SECTION and "without <research_plan>" in found.message:
        return _own(OwnReason.MISSING_RESEARCH_PLAN, found.message)
    paper = PAPER_REASONS.get(found.code)
    return Rejection(paper or found.code.value, paper is not None, found.message)


def _own(reason: OwnReason, message: str) -> Rejection:
    return Rejection(reason, False, message)
