"""A trajectory read whole: turns, stages, citations and violations, each derived once from the recorded text."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rubricem_env.domain.span import StageSpans
from rubricem_env.domain.stage import Stage
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.scaffold.boundaries import ReviewStart, find_boundaries
from rubricem_env.scaffold.citations import Citations, resolve_citations, shown_snippets
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, PLAN, REVIEW
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.validator import trajectory_violations, turn_violations
from rubricem_env.scaffold.violations import Mode, Violation, rejecting

_ACTION_AT_END = re.compile(rf"</(?:{CALL_TOOL}|{ANSWER})\s*>\s*$", re.IGNORECASE)


class Reading(NamedTuple):
    """What a trajectory amounts to."""

    trajectory: Trajectory
    turns: tuple[Turn, ...]
    spans: StageSpans
    """In the policy's joined text."""
    policy_text: str
    answer: str | None
    """Inside the answer tags; what there is of it where it breaks off; None where none was begun."""
    is_complete: bool
    """The policy closed an answer."""
    citations: Citations
    violations: tuple[Violation, ...]

    def stage_text(self, stage: Stage) -> str:
        return self.spans.text(stage, self.policy_text)

    def happened(self, stage: Stage) -> bool:
        """Whether the stage is there to be judged: begun, and with something in it (choice A10)."""
        if stage is Stage.RESEARCH:
            return bool(self.stage_text(stage).strip())
        block = self._block(stage)
        turn = block and self.turns[block[0]]
        return bool(block and turn and block[1].inner(turn.text).strip() and self.spans.of(stage))

    def _block(self, stage: Stage) -> tuple[int, Block] | None:
        """The block that makes the stage, with the index of its turn."""
        name = {Stage.PLAN: PLAN, Stage.REVIEW: REVIEW, Stage.ANSWER: ANSWER}[stage]
        order = range(len(self.turns)) if stage is Stage.PLAN else range(len(self.turns) - 1, -1, -1)
        for index in order:
            turn = self.turns[index]
            block = turn.first(name) if stage is Stage.PLAN else turn.last(name)
            if block is not None:
                return index, block
        return None

    def rejects(self, mode: Mode) -> tuple[Violation, ...]:
        """The violations for which `mode` rejects this trajectory; empty means accepted."""
        return rejecting(self.violations, mode)


def read_trajectory(
    trajectory: Trajectory, *, turns: Sequence[Turn] | None = None, review_start: ReviewStart = "think"
) -> Reading:
    """Read a trajectory; `turns` saves the parsing where the episode has done it already."""
    read = tuple(turns) if turns is not None else parse_turns(trajectory)
    spans = find_boundaries(read, review_start=review_start)
    closed = next((turn for turn in read if turn.answer is not None), None)
    answer = _answer_text(read, closed)
    citations = resolve_citations(answer or "", shown_snippets(trajectory.segments))
    violations = (*turn_violations(read), *trajectory_violations(trajectory, read, citations))
    policy_text = "".join(turn.text for turn in read)
    return Reading(trajectory, read, spans, policy_text, answer, closed is not None, citations, violations)


def parse_turns(trajectory: Trajectory) -> tuple[Turn, ...]:
    """Every turn of a recorded trajectory, numbered from 1.

    Policy segments that touch are one turn, until an action closes at the end of one: so a record cut into
    pieces reads like the whole, and one that left its tool output out still has its turns.
    """
    turns: list[Turn] = []
    pending = ""
    for segment in trajectory.segments:
        if segment.origin is Origin.POLICY:
            pending += segment.text
            turn = _read_turn(pending, segment.cut, len(turns) + 1) if _may_end_turn(segment) else None
            if turn is None or not turn.has_action:
                continue
            turns.append(turn)
        elif pending:
            turns.append(parse_turn(pending, len(turns) + 1))
        pending = ""
    if pending:
        turns.append(parse_turn(pending, len(turns) + 1))
    return tuple(turns)


def _may_end_turn(segment: Segment) -> bool:
    return bool(segment.cut or _ACTION_AT_END.search(segment.text[-40:]))


def _read_turn(kept: str, cut: str, number: int) -> Turn:
    """The turn as it was written, so that what was cut is reported; its text is what was kept."""
    turn = parse_turn(kept + cut, number)
    return turn._replace(text=kept) if cut and turn.end == len(kept) else parse_turn(kept, number)


def _answer_text(turns: Sequence[Turn], closed: Turn | None) -> str | None:
    if closed is not None and closed.answer is not None:
        return closed.answer.inner(closed.text).strip()
    unclosed = turns[-1].last(ANSWER) if turns else None
    return unclosed.inner(turns[-1].text).strip() if unclosed is not None else None
