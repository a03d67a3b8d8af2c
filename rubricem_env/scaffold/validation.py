"""Checks the rules that span turns: order of stages, missing parts, tool errors and citations."""

from collections.abc import Iterable, Iterator, Sequence

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_env.scaffold.citations import Citations
from rubricem_env.scaffold.grammar import CALL_TOOL, DEFAULT, THINK
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.violation import Code, Violation, violation

MAX_CONSECUTIVE_TOOL_ERRORS = 1
"""Two in a row are rejected in data generation; one, with a recovery, teaches resilience (paper, section B.2)."""


class TurnRules:
    """The rules of turns, which are given one by one: each is checked against what came before it."""

    def __init__(self, scaffold: Scaffold = DEFAULT) -> None:
        self._scaffold = scaffold
        stages = scaffold.stages
        self._closing = [stage for stage in stages if stage.ends_with]
        self._weighing = [(tag, stage) for stage in stages for tag in stage.holds if tag != CALL_TOOL]
        self._opening = [stage for stage in stages[:-1] if stage.begins_with]
        self._has_acted = self._has_searched = False
        self._begun: set[str] = set()
        """The stages that are closed by their block and have it."""
        self._opened: set[str] = set()
        """The stages that are opened by their block and have it since the last tool call."""

    def check(self, turn: Turn) -> Iterator[Violation]:
        """The violations of the next turn: first those of the emission itself, then those of order."""
        yield from turn.violations
        yield from self._begins_with_thought(turn)
        if not self._has_acted:
            yield from self._closes(turn)
        if self._has_searched:
            yield from self._after_search(turn)
        yield from self._in_order(turn)
        if turn.answer is not None:
            yield from self._answers(turn)
        opened = {stage.name for stage in self._opening if turn.first(stage.begins_with or "") is not None}
        self._opened = self._opened | opened if turn.call is None else set()
        self._has_searched = self._has_searched or turn.call is not None

    def _violation(self, code: Code, turn: Turn, value: str = "", start: int = 0) -> Violation:
        return violation(code, turn.number, value, start, scaffold=self._scaffold)

    def _begins_with_thought(self, turn: Turn) -> Iterator[Violation]:
        text = turn.text.lstrip()
        begins = len(turn.text) - len(text)
        if not turn.blocks or turn.blocks[0].name != THINK or turn.blocks[0].start != begins:
            yield self._violation(Code.MISSING_THINK, turn, text[:20] or "nothing", begins)

    def _closes(self, turn: Turn) -> Iterator[Violation]:
        """The blocks that come before the first action, each with its sections."""
        for stage in self._closing:
            if stage.name in self._begun:
                continue
            block = turn.first(stage.ends_with or "")
            if block is not None:
                self._begun.add(stage.name)
                yield from self._lacking(block, turn, stage.missing_section)
            elif turn.has_action:
                yield self._violation(stage.missing, turn, f"<{stage.ends_with}>")
        self._has_acted = turn.has_action or len(self._begun) == len(self._closing)

    def _lacking(self, block: Block, turn: Turn, code: Code) -> Iterator[Violation]:
        present = {section.name for section in block.sections}
        for name in self._scaffold.sections.get(block.name, ()):
            if name not in present:
                yield self._violation(code, turn, f"<{name}>", block.start)

    def _after_search(self, turn: Turn) -> Iterator[Violation]:
        for tag, stage in self._weighing:
            if turn.first(tag) is None and not self._opened:
                yield self._violation(stage.missing, turn, f"<{tag}>")

    def _in_order(self, turn: Turn) -> Iterator[Violation]:
        """What was opened stays open: no call follows in its turn, and nothing of an earlier stage comes after it."""
        last = [(stage, turn.last(stage.begins_with or "")) for stage in self._opening]
        written = [(stage, block) for stage, block in last if block is not None]
        for place, (stage, opened) in enumerate(written):
            if self._has_searched:
                for tag, _ in self._weighing:
                    weighed = turn.last(tag)
                    if place == 0 and weighed is not None and weighed.start > opened.start:
                        yield self._violation(Code.STAGE_ORDER, turn, f"<{tag}>", weighed.start)
                if turn.call is not None:
                    yield self._violation(Code.STAGE_ORDER, turn, f"<{stage.begins_with}>", opened.start)
            for earlier, before in written[:place]:
                if before.start > opened.start:
                    yield self._violation(Code.STAGE_ORDER, turn, f"<{earlier.begins_with}>", before.start)

    def _answers(self, turn: Turn) -> Iterator[Violation]:
        if not (self._has_searched or self._scaffold.answers_at_once or not self._scaffold.calls_tools):
            yield self._violation(Code.ANSWER_IN_FIRST_TURN, turn)
        for stage in self._opening:
            block = turn.last(stage.begins_with or "")
            if block is None and stage.name not in self._opened:
                yield self._violation(stage.missing, turn, f"<{stage.begins_with}>")
            if block is not None:
                yield from self._lacking(block, turn, stage.missing_section)


def turn_violations(turns: Iterable[Turn], scaffold: Scaffold = DEFAULT) -> Iterator[Violation]:
    """The violations of each turn."""
    rules = TurnRules(scaffold)
    for turn in turns:
        yield from rules.check(turn)


def trajectory_violations(trajectory: Trajectory, turns: Sequence[Turn], citations: Citations) -> Iterator[Violation]:
    """What is wrong with the trajectory as a whole."""
    if not trajectory.question.strip():
        yield violation(Code.EMPTY_QUESTION, 0)
    last = next((turn.number for turn in turns if turn.answer is not None), 0)
    if not last:
        yield violation(Code.MISSING_ANSWER, len(turns), scaffold=trajectory.scaffold)
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
