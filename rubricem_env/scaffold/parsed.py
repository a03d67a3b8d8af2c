"""A parsed trajectory: turns, stages, citations and violations, each derived once from the recorded text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rubricem_env.domain.base import Span, StageSpans
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_env.scaffold.boundaries import PlacedBlock, boundaries_of, find_answer, place_blocks
from rubricem_env.scaffold.citations import Citations, resolve_citations
from rubricem_env.scaffold.parser import EmissionStream, parse_turn
from rubricem_env.scaffold.regular_turn import read_regular_turn
from rubricem_env.scaffold.snippets import shown_snippets
from rubricem_env.scaffold.turn import Block, Turn
from rubricem_env.scaffold.validation import trajectory_violations, turn_violations
from rubricem_env.scaffold.violation import Violation, strict_codes


class ParsedTrajectory(NamedTuple):
    """A trajectory with its turns, stages, answer, citations and violations."""

    trajectory: Trajectory
    turns: tuple[Turn, ...]
    spans: StageSpans
    """The spans of the stages in the policy's joined text."""
    policy_text: str
    answer: str | None
    """The text inside the answer tags, also if it is truncated; None if no answer was begun."""
    is_complete: bool
    """The policy closed an answer."""
    citations: Citations
    violations: tuple[Violation, ...]
    shown: frozenset[str]
    """The ids of all snippets that tools have shown."""
    blocks: tuple[PlacedBlock, ...]
    """All blocks of the turns."""

    @property
    def scaffold(self) -> Scaffold:
        """The scaffold that it was written and read by."""
        return self.trajectory.scaffold

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return self.trajectory.scaffold.names

    def stage_text(self, stage: str) -> str:
        return self.spans[stage].of(self.policy_text) if stage in self.spans else ""

    def happened(self, stage: str) -> bool:
        """Whether the stage can be judged: one of its tags was opened in it and is not empty."""
        return any(block.inner(text).strip() for block, text in self._blocks_of(stage))

    def is_truncated(self, stage: str) -> bool:
        """Whether the tag that makes the stage was never closed.

        Always False for a stage that loops, which has many.
        """
        makers = [block for block, _ in self._blocks_of(stage)]
        return not self.scaffold.form(stage).loops and bool(makers) and not makers[0].is_closed

    def _blocks_of(self, stage: str) -> Iterator[tuple[Block, str]]:
        """The blocks that make the stage, each with the text of its turn."""
        own = self.spans.get(stage, Span(0, 0))
        makers = self.scaffold.form(stage).makers
        for start, block, turn in self.blocks:
            if block.name in makers and own.start <= start < own.end:
                yield block, turn.text

    @property
    def rejections(self) -> tuple[Violation, ...]:
        """The violations for which data generation rejects this trajectory; empty means accepted."""
        strict = strict_codes(self.scaffold)
        return tuple(violation for violation in self.violations if violation.code in strict)


def parse_trajectory(
    trajectory: Trajectory,
    *,
    turns: Sequence[Turn] | None = None,
    found: Iterable[Violation] | None = None,
) -> ParsedTrajectory:
    """Parse a trajectory; give `turns` if the episode has parsed them already, and `found`, their violations."""
    scaffold = trajectory.scaffold
    read = tuple(turns) if turns is not None else parse_turns(trajectory)
    blocks = place_blocks(read)
    placed_answer = find_answer(read, blocks, scaffold)
    spans = boundaries_of(read, blocks, placed_answer, scaffold)
    answer = None if placed_answer is None else placed_answer.block.inner(placed_answer.turn.text).strip()
    is_complete = any(turn.answer is not None for turn in read)
    shown = shown_snippets(trajectory.segments)
    citations = resolve_citations(answer or "", shown) if scaffold.cites else Citations()
    of_turns = turn_violations(read, scaffold) if found is None else found
    violations = (*of_turns, *trajectory_violations(trajectory, read, citations))
    policy_text = "".join(turn.text for turn in read)
    return ParsedTrajectory(
        trajectory=trajectory,
        turns=read,
        spans=spans,
        policy_text=policy_text,
        answer=answer,
        is_complete=is_complete,
        citations=citations,
        violations=violations,
        shown=shown,
        blocks=blocks,
    )


def parse_turns(trajectory: Trajectory) -> tuple[Turn, ...]:
    """Every turn of a recorded trajectory, numbered from 1.

    Adjacent policy segments are one turn until an action closes in one of them. So a record that is split into pieces
    reads like the whole, and a record without tool output still has its turns.
    """
    scaffold = trajectory.scaffold
    turns: list[Turn] = []
    stream: EmissionStream | None = None
    for segment in trajectory.segments:
        if segment.origin is Origin.POLICY:
            turn = read_regular_turn(segment.text, len(turns) + 1, scaffold) if stream is None else None
            if turn is None:
                stream = stream or EmissionStream(len(turns) + 1, scaffold)
                turn = stream.feed(segment.text) or (stream.close() if segment.cut else None)
            if turn is not None:
                if segment.cut:
                    # With the violations of the cut text included; the text is the kept one.
                    written = parse_turn(turn.text + segment.cut, turn.number, scaffold)
                    turn = written._replace(text=turn.text) if written.end == len(turn.text) else turn
                turns.append(turn)
                stream = None
        elif stream is not None:
            turns.append(stream.close())
            stream = None
    return tuple(turns) if stream is None else (*turns, stream.close())
