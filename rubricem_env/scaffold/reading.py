"""A trajectory read whole: turns, stages, citations and violations, each derived once from the recorded text."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rubricem_env.domain.span import StageSpans
from rubricem_env.domain.stage import Stage
from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_env.scaffold.boundaries import ReviewStart, find_boundaries
from rubricem_env.scaffold.citations import Citations, resolve_citations, shown_snippets
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, PLAN, REVIEW, STATE_EVALUATION
from rubricem_env.scaffold.parser import parse_turn
from rubricem_env.scaffold.regular import read_regular_turn
from rubricem_env.scaffold.stream import EmissionStream
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.validator import trajectory_violations, turn_violations
from rubricem_env.scaffold.violations import Mode, Violation, rejecting

_MAKERS = {
    Stage.PLAN: (PLAN,),
    Stage.RESEARCH: (CALL_TOOL, STATE_EVALUATION),
    Stage.REVIEW: (REVIEW,),
    Stage.ANSWER: (ANSWER,),
}
"""The blocks without which a stage did not happen. Thoughts alone are no research."""


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
        """Whether the stage is there to be judged: one of its tags was opened in it, and says something (choice A10)."""
        return any(block.inner(text).strip() for block, text in self._blocks_of(stage))

    def breaks_off(self, stage: Stage) -> bool:
        """Whether the tag that makes the stage was never closed (choice A10). Research has many, and never does."""
        makers = [block for block, _ in self._blocks_of(stage)]
        return stage is not Stage.RESEARCH and bool(makers) and not makers[0].is_closed

    def _blocks_of(self, stage: Stage) -> Iterator[tuple[Block, str]]:
        """The blocks that make the stage, each with the text of its turn."""
        spans = self.spans.of(stage)
        offset = 0
        for turn in self.turns:
            for block in turn.blocks:
                start = offset + block.start
                if block.name in _MAKERS[stage] and any(span.start <= start < span.end for span in spans):
                    yield block, turn.text
            offset += len(turn.text)

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

    Policy segments that touch are one turn until an action closes in one of them: so a record cut into pieces
    reads like the whole, and one that left its tool output out still has its turns.
    """
    turns: list[Turn] = []
    stream: EmissionStream | None = None
    for segment in trajectory.segments:
        if segment.origin is Origin.POLICY:
            turn = read_regular_turn(segment.text, len(turns) + 1) if stream is None else None
            if turn is None:
                stream = stream or EmissionStream(len(turns) + 1)
                turn = stream.feed(segment.text) or (stream.close() if segment.cut else None)
            if turn is not None:
                turns.append(_with_cut(turn, segment.cut) if segment.cut else turn)
                stream = None
        elif stream is not None:
            turns.append(stream.close())
            stream = None
    return tuple(turns) if stream is None else (*turns, stream.close())


def _with_cut(turn: Turn, cut: str) -> Turn:
    """The turn as it was written, so that what was cut is reported; its text is what was kept."""
    written = parse_turn(turn.text + cut, turn.number)
    return written._replace(text=turn.text) if written.end == len(turn.text) else turn


def _answer_text(turns: Sequence[Turn], closed: Turn | None) -> str | None:
    if closed is not None and closed.answer is not None:
        return closed.answer.inner(closed.text).strip()
    unclosed = turns[-1].last(ANSWER) if turns else None
    return unclosed.inner(turns[-1].text).strip() if unclosed is not None else None
