"""Checks the rules that span turns: order of stages, missing parts, tool errors and citations."""

from collections.abc import Iterable, Iterator, Sequence

from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_env.scaffold.citations import Citations
from rubricem_env.scaffold.grammar import PLAN, REVIEW, SECTIONS, STATE_EVALUATION, THINK
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.violation import Code, Violation, violation

MAX_CONSECUTIVE_TOOL_ERRORS = 1
"""Two in a row are rejected in data generation; one, with a recovery, teaches resilience (paper, section B.2)."""


class TurnRules:
    """The rules of turns, which are given one by one: each is checked against what came before it."""

    def __init__(self) -> None:
        self._has_planned = self._has_searched = self._has_reviewed = False

    def check(self, turn: Turn) -> Iterator[Violation]:
        """The violations of the next turn: first those of the emission itself, then those of order."""
        yield from turn.violations
        yield from _opening(turn)
        if not self._has_planned:
            yield from _first_plan(turn)
            self._has_planned = turn.has_action or turn.first(PLAN) is not None
        if self._has_searched:
            yield from _after_search(turn, self._has_reviewed)
        if turn.answer is not None:
            yield from _answer_in_place(turn, self._has_searched, self._has_reviewed)
        self._has_reviewed = turn.call is None and (self._has_reviewed or turn.first(REVIEW) is not None)
        self._has_searched = self._has_searched or turn.call is not None


def turn_violations(turns: Iterable[Turn]) -> Iterator[Violation]:
    """The violations of each turn."""
    rules = TurnRules()
    for turn in turns:
        yield from rules.check(turn)


def _opening(turn: Turn) -> Iterator[Violation]:
    text = turn.text.lstrip()
    begins = len(turn.text) - len(text)
    if not turn.blocks or turn.blocks[0].name != THINK or turn.blocks[0].start != begins:
        yield violation(Code.MISSING_THINK, turn.number, text[:20] or "nothing", begins)


def _first_plan(turn: Turn) -> Iterator[Violation]:
    plan = turn.first(PLAN)
    if plan is None and turn.has_action:
        yield violation(Code.MISSING_PLAN, turn.number)
    if plan is not None:
        yield from _missing_sections(plan, turn.number, Code.MISSING_PLAN_SECTION)


def _missing_sections(block: Block, number: int, code: Code) -> Iterator[Violation]:
    present = {section.name for section in block.sections}
    for name in SECTIONS[block.name]:
        if name not in present:
            yield violation(code, number, f"<{name}>", block.start)


def _after_search(turn: Turn, has_reviewed: bool) -> Iterator[Violation]:
    if turn.first(STATE_EVALUATION) is None and not has_reviewed:
        yield violation(Code.MISSING_STATE_EVALUATION, turn.number)
    review = turn.last(REVIEW)
    state = turn.last(STATE_EVALUATION)
    if review is not None and state is not None and state.start > review.start:
        yield violation(Code.STAGE_ORDER, turn.number, f"<{STATE_EVALUATION}>", state.start)
    if review is not None and turn.call is not None:
        yield violation(Code.STAGE_ORDER, turn.number, f"<{REVIEW}>", review.start)


def _answer_in_place(turn: Turn, has_searched: bool, has_reviewed: bool) -> Iterator[Violation]:
    if not has_searched:
        yield violation(Code.ANSWER_IN_FIRST_TURN, turn.number)
    review = turn.last(REVIEW)
    if review is None and not has_reviewed:
        yield violation(Code.MISSING_REVIEW, turn.number)
    if review is not None:
        yield from _missing_sections(review, turn.number, Code.MISSING_REVIEW_SECTION)


def trajectory_violations(trajectory: Trajectory, turns: Sequence[Turn], citations: Citations) -> Iterator[Violation]:
    """What is wrong with the trajectory as a whole."""
    if not trajectory.question.strip():
        yield violation(Code.EMPTY_QUESTION, 0)
    last = next((turn.number for turn in turns if turn.answer is not None), 0)
    if not last:
        yield violation(Code.MISSING_ANSWER, len(turns))
    yield from _tool_errors(trajectory)
    for citation in citations.empty:
        yield violation(Code.EMPTY_CITATION, last, citation.written, citation.start)
    for snippet_id in citations.unknown:
        yield violation(Code.UNKNOWN_CITATION, last, snippet_id)


def _tool_errors(trajectory: Trajectory) -> Iterator[Violation]:
    """One violation for each series of tool errors that is too long, at the turn after the first excess error."""
    answered = (segment.observation for segment in trajectory.segments if segment.origin is Origin.TOOL)
    run = 0
    for turn, observation in enumerate(answered, 1):
        if observation is None or observation.status is None:
            continue
        run = run + 1 if observation.status.is_error else 0
        if run == MAX_CONSECUTIVE_TOOL_ERRORS + 1:
            yield violation(Code.CONSECUTIVE_TOOL_ERRORS, turn + 1, str(run))
