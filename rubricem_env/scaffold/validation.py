"""Checks the rules that span turns: order of stages, missing parts, tool errors and citations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from rubricem_env.domain.scaffold import Scaffold, StageForm
from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_env.scaffold.citations import Citations
from rubricem_env.scaffold.grammar import CALL_TOOL, DEFAULT, MAX_SCAFFOLDS, THINK
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.violation import Code, Violation, violation

MAX_CONSECUTIVE_TOOL_ERRORS = 1
"""Two in a row are rejected in data generation; one, with a recovery, teaches resilience (paper, section B.2)."""


class _Demands(NamedTuple):
    """The blocks that a scaffold asks for, each with its stage."""

    closing: tuple[tuple[str, StageForm], ...]
    """Those that close a stage before the first action."""
    weighing: tuple[tuple[str, StageForm], ...]
    """Those that follow each tool result."""
    opening: Mapping[str, StageForm]
    """Those that open a stage before the answer."""


@lru_cache(maxsize=MAX_SCAFFOLDS)
def _demands_of(scaffold: Scaffold) -> _Demands:
    stages = scaffold.stages
    return _Demands(
        closing=tuple((stage.ends_with, stage) for stage in stages if stage.ends_with),
        weighing=tuple((tag, stage) for stage in stages for tag in stage.holds if tag != CALL_TOOL),
        opening={stage.begins_with: stage for stage in stages[:-1] if stage.begins_with},
    )


class TurnRules:
    """The rules of turns, which are given one by one: each is checked against what came before it."""

    def __init__(self, scaffold: Scaffold = DEFAULT) -> None:
        self._scaffold = scaffold
        self._demands = _demands_of(scaffold)
        self._has_acted = self._has_searched = False
        self._begun: set[str] = set()
        """The blocks that close a stage and were written."""
        self._opened: set[str] = set()
        """The blocks that open a stage and were written since the last tool call."""

    def check(self, turn: Turn) -> Iterator[Violation]:
        """The violations of the next turn: first those of the emission itself, then those of order."""
        yield from turn.violations
        yield from self._begins_with_thought(turn)
        if not self._has_acted:
            yield from self._closes(turn)
        written = {block.name for block in turn.blocks}
        opened = written & self._demands.opening.keys()
        if self._has_searched and not self._opened:
            for tag, stage in self._demands.weighing:
                if tag not in written:
                    yield self._violation(stage.missing, turn, f"<{tag}>")
        if opened:
            yield from self._in_order(turn)
        if turn.answer is not None:
            yield from self._answers(turn)
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
        for tag, stage in self._demands.closing:
            if tag in self._begun:
                continue
            block = turn.first(tag)
            if block is not None:
                self._begun.add(tag)
                yield from self._lacking(block, turn, stage.missing_section)
            elif turn.has_action:
                yield self._violation(stage.missing, turn, f"<{tag}>")
        self._has_acted = turn.has_action or len(self._begun) == len(self._demands.closing)

    def _lacking(self, block: Block, turn: Turn, code: Code) -> Iterator[Violation]:
        present = {section.name for section in block.sections}
        for name in self._scaffold.sections.get(block.name, ()):
            if name not in present:
                yield self._violation(code, turn, f"<{name}>", block.start)

    def _in_order(self, turn: Turn) -> Iterator[Violation]:
        """What was opened stays open: no call follows in its turn, and nothing of an earlier stage comes after it."""
        last = [(tag, turn.last(tag)) for tag in self._demands.opening]
        written = [(tag, block) for tag, block in last if block is not None]
        for place, (tag, opened) in enumerate(written):
            if self._has_searched:
                for weighing, _ in self._demands.weighing:
                    weighed = turn.last(weighing)
                    if place == 0 and weighed is not None and weighed.start > opened.start:
                        yield self._violation(Code.STAGE_ORDER, turn, f"<{weighing}>", weighed.start)
                if turn.call is not None:
                    yield self._violation(Code.STAGE_ORDER, turn, f"<{tag}>", opened.start)
            for earlier, before in written[:place]:
                if before.start > opened.start:
                    yield self._violation(Code.STAGE_ORDER, turn, f"<{earlier}>", before.start)

    def _answers(self, turn: Turn) -> Iterator[Violation]:
        if not (self._has_searched or self._scaffold.answers_at_once or not self._scaffold.calls_tools):
            yield self._violation(Code.ANSWER_IN_FIRST_TURN, turn)
        for tag, stage in self._demands.opening.items():
            block = turn.last(tag)
            if block is None and tag not in self._opened:
                yield self._violation(stage.missing, turn, f"<{tag}>")
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
