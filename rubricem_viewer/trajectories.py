"""One trajectory as the API shows it: its elements, its tokens, and per stage its scores, verdicts and violations.

A trajectory is split into segments, each with its author and its offset in the policy's text. Offsets for the page
count UTF-16 units, as JavaScript does. A quotation in a judge's reason is located in the policy's own text.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

from rubricem_agent.learn.record import GroupEntry, RolloutEntry
from rubricem_agent.rollout.report import sources_in
from rubricem_agent.rollout.tokens import stage_lookup
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.judgement import Rubric, StageScore, Unscored
from rubricem_env.domain.trajectory import Origin, Segment, ToolCall
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, PLAN, REVIEW, STATE_EVALUATION, STRICT, THINK
from rubricem_env.scaffold.parsed import ParsedTrajectory, find_citations, unfounded_claims
from rubricem_env.scaffold.parser import Block, Turn
from rubricem_viewer import api
from rubricem_viewer.records import number_or_none

_KINDS: dict[str, api.ElementKind] = {
    THINK: "think",
    PLAN: "plan",
    STATE_EVALUATION: "state_evaluation",
    REVIEW: "review",
    CALL_TOOL: "call",
    ANSWER: "answer",
}
_FRAME = re.compile(r"^\s*<tool_output[^>]*>\n?|\n?</tool_output>\s*$")


class ElementSegment(NamedTuple):
    """One element of a trajectory before it is put into the words of the API."""

    kind: api.ElementKind
    text: str
    turn: int
    stage: Stage | None = None
    start: int = -1
    """Where its text begins in the policy's text; -1 for what is no part of that."""
    is_closed: bool = True
    sections: tuple[tuple[str, int, int], ...] = ()
    """Parts of a plan or a review: name, start and end in the text."""
    call: ToolCall | None = None
    segment: Segment | None = None
    """Of a tool's answer."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def cut_trajectory(parsed: ParsedTrajectory) -> tuple[ElementSegment, ...]:
    """All pieces in the order of the record."""
    stage_at = stage_lookup(parsed.spans)
    pieces: list[ElementSegment] = []
    turns, number, turn_start, position = parsed.turns, 0, 0, 0
    for segment in parsed.trajectory.segments:
        last_stage = stage_at(max(turn_start - 1, 0))
        if segment.origin is Origin.PROMPT:
            pieces.append(ElementSegment("prompt", segment.text, 0))
        elif segment.origin is Origin.TOOL:
            is_notice = segment.observation is not None and segment.observation.status is None
            kind: api.ElementKind = "notice" if is_notice else "result"
            text = _FRAME.sub("", segment.text)
            pieces.append(ElementSegment(kind, text, number, last_stage, segment=segment))
        else:
            position += len(segment.text)
            while number < len(turns) and turn_start < position:
                pieces += _cut_turn(turns[number], turn_start, stage_at)
                turn_start += len(turns[number].text)
                number += 1
            if segment.cut:
                pieces.append(ElementSegment("cut", segment.cut, number, stage_at(max(turn_start - 1, 0))))
    return tuple(pieces)


def _cut_turn(turn: Turn, begin: int, stage_at: Callable[[int], Stage]) -> Iterator[ElementSegment]:
    """The blocks of a turn, and the text between them."""

    def loose(start: int, end: int) -> Iterator[ElementSegment]:
        start, end = _stripped(turn.text, start, end)
        if start < end:
            yield ElementSegment("text", turn.text[start:end], turn.number, stage_at(begin + start), begin + start)

    at = 0
    for block in turn.blocks:
        yield from loose(at, block.start)
        start, end = _stripped(turn.text, block.inner_start, block.inner_end)
        kind = _KINDS.get(block.name, "text")
        yield ElementSegment(
            kind,
            turn.text[start:end],
            turn.number,
            stage_at(begin + block.start),
            begin + start,
            block.is_closed,
            tuple(_section(turn.text, part, start) for part in block.sections),
            turn.call if kind == "call" else None,
        )
        at = block.end
    yield from loose(at, len(turn.text))


def _section(text: str, block: Block, origin: int) -> tuple[str, int, int]:
    start, end = _stripped(text, block.inner_start, block.inner_end)
    return block.name, start - origin, end - origin


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The same range without blanks at its ends."""
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    return start, start + len(inner.strip())


def count_units(text: str) -> int:
    """The length of a text as JavaScript counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def character_at(text: str, unit: int) -> int:
    """The character that a unit belongs to."""
    return unit if text.isascii() else len(text.encode("utf-16-le")[: 2 * unit].decode("utf-16-le", "ignore"))


MAX_TEXT = 20_000
MAX_SNIPPET = 8_000
MAX_ELEMENTS = 200
MAX_CITATIONS = 500
_SNIPPET = re.compile(r'<snippet id="([^"]{1,40})">(.*?)</snippet>\n?', re.DOTALL)


def make_elements(
    pieces: Sequence[ElementSegment], first: int, *, cited: Collection[str], shown: Collection[str]
) -> tuple[api.Element, ...]:
    """At most `MAX_ELEMENTS` of a trajectory's elements from one on."""
    calls = {number: piece.call.identity for number, piece in enumerate(pieces) if piece.call is not None}
    first_calls = {identity: number for number, identity in reversed(calls.items())}
    elements = []
    for number, piece in enumerate(pieces[first : first + MAX_ELEMENTS], first):
        text = _SNIPPET.sub("", piece.text).strip() if piece.kind == "result" else piece.text
        observation = piece.segment.observation if piece.segment is not None else None
        elements.append(
            api.Element(
                index=number,
                kind=piece.kind,
                stage=piece.stage.value if piece.stage else "",
                turn=piece.turn,
                text=text[:MAX_TEXT],
                length=count_units(piece.text),
                closed=piece.is_closed,
                sections=tuple(
                    api.SectionView(
                        name=name,
                        text=piece.text[start:end][:MAX_TEXT],
                        start=count_units(piece.text[:start]),
                        end=count_units(piece.text[:end]),
                    )
                    for name, start, end in piece.sections
                ),
                call=piece.call.model_copy(update={"query": piece.call.query[:MAX_TEXT]}) if piece.call else None,
                repeated=number in calls and first_calls[calls[number]] != number,
                status=observation.status.value if observation is not None and observation.status else "",
                snippets=_snippets(piece.segment.text, cited) if piece.segment is not None else (),
                citations=_citations(piece.text, shown) if piece.kind == "answer" else (),
            )
        )
    return tuple(elements)


def _snippets(text: str, cited: Collection[str]) -> tuple[api.SnippetView, ...]:
    sources = sources_in(text)
    snippets = []
    for snippet_id, body in _SNIPPET.findall(text):
        title, url = sources[snippet_id]
        snippets.append(
            api.SnippetView(
                id=snippet_id,
                title=title,
                url=url,
                text=(body.partition("\n")[2] if title or url else body)[:MAX_SNIPPET],
                cited=snippet_id in cited,
            )
        )
    return tuple(snippets)


def _citations(answer: str, shown: Collection[str]) -> tuple[api.CitationView, ...]:
    return tuple(
        api.CitationView(
            ids=citation.ids,
            claim=citation.claim[:MAX_TEXT],
            start=count_units(answer[: citation.start]),
            end=count_units(answer[: citation.end]),
            known=tuple(one for one in citation.ids if one in shown),
        )
        for citation in islice(find_citations(answer), MAX_CITATIONS)
    )


_QUOTED = re.compile(r'“([^”]{2,400})”|"([^"]{2,400})"|«([^»]{2,400})»')
_MOST = 8

PolicyPieces = Sequence[tuple[int, ElementSegment]]
"""The policy's pieces with their numbers, by where they begin in its text."""


def select_policy_pieces(pieces: Sequence[ElementSegment]) -> PolicyPieces:
    return [(number, piece) for number, piece in enumerate(pieces) if piece.start >= 0]


def locate(policy_pieces: PolicyPieces, start: int, end: int) -> api.Passage | None:
    """A range of the policy's text as a passage of an element; None where it begins between two of them."""
    for number, piece in policy_pieces:
        if piece.start <= start < piece.end:
            first, last = (count_units(piece.text[: min(at, piece.end) - piece.start]) for at in (start, end))
            return api.Passage(element=number, start=first, end=last)
    return None


def find_quotations(
    reason: str, parsed: ParsedTrajectory, stage: Stage, *, policy_pieces: PolicyPieces
) -> tuple[api.Passage, ...]:
    """The quoted passages of a reason, each where it first stands: in the stage, or else anywhere."""
    found = []
    text, within = parsed.policy_text, parsed.spans.get(stage)
    for groups in _QUOTED.findall(reason)[:_MOST]:
        quoted = next(filter(None, groups)).strip().rstrip("….")
        start = text.find(quoted, within.start, within.end) if within else -1
        start = text.find(quoted) if start < 0 else start
        passage = locate(policy_pieces, start, start + len(quoted)) if start >= 0 and quoted else None
        if passage is not None and passage not in found:
            found.append(passage)
    return tuple(found)


def rubrics_of(group: GroupEntry) -> dict[str, Rubric]:
    """Every rubric that a group knows, by id."""
    known = [*group.rubrics, *(entry.rubric for entry in group.active), *(gone.last.rubric for gone in group.retired)]
    return {rubric.id: rubric for rubric in known}


def stage_views(
    entry: RolloutEntry, parsed: ParsedTrajectory, *, rubrics: Mapping[str, Rubric], policy_pieces: PolicyPieces
) -> tuple[api.StageView, ...]:
    """All four stages of a rollout, in their order."""
    rubric_scores = {score.rubric_id: score for score in entry.judged.rubric_scores}
    views = []
    for stage in STAGES:
        index, outcome = stage.position, entry.judged.judgement.outcome(stage)
        judged = [one for one in rubrics.values() if one.stage is stage and one.id in rubric_scores]
        views.append(
            api.StageView(
                stage=stage.value,
                happened=parsed.happened(stage),
                score=number_or_none(outcome.score) if isinstance(outcome, StageScore) else None,
                unscored=outcome.reason if isinstance(outcome, Unscored) else "",
                detail=outcome.detail if isinstance(outcome, Unscored) else "",
                true=entry.true[index] if entry.true else None,
                returned=number_or_none(entry.returns[index]) if entry.returns else None,
                advantage=number_or_none(entry.advantages[index]) if entry.advantages else None,
                verdicts=tuple(
                    api.VerdictView(
                        rubric=one,
                        rubric_score=rubric_scores[one.id],
                        passages=find_quotations(
                            rubric_scores[one.id].justification, parsed, stage, policy_pieces=policy_pieces
                        ),
                    )
                    for one in judged
                ),
            )
        )
    return tuple(views)


MAX_VIOLATIONS = 500
MAX_QUESTION = 20_000


def view_trajectory(parsed: ParsedTrajectory, row: api.TrajectoryRow, *, from_element: int = 0) -> api.TrajectoryView:
    """What a trajectory says by itself, without a judge."""
    pieces = cut_trajectory(parsed)
    cited = {*parsed.citations.known, *parsed.citations.unknown}
    return api.TrajectoryView(
        row=row,
        elements=make_elements(pieces, from_element, cited=cited, shown=parsed.shown),
        elements_total=len(pieces),
        violations=_violations(parsed, select_policy_pieces(pieces)),
        claims=unfounded_claims(parsed)[:MAX_VIOLATIONS],
        unknown_citations=parsed.citations.unknown[:MAX_VIOLATIONS],
        turns=len(parsed.turns),
    )


def _begin(policy_pieces: PolicyPieces, start: int) -> api.Passage | None:
    """Where something begins: in an element, or at the start of the next one."""
    found = next(((number, piece) for number, piece in policy_pieces if start < piece.end), None)
    return locate([found], max(start, found[1].start), start) if found else None


def _violations(parsed: ParsedTrajectory, policy_pieces: PolicyPieces) -> tuple[api.ViolationView, ...]:
    starts = [0, *accumulate(len(turn.text) for turn in parsed.turns)]
    return tuple(
        api.ViolationView(
            code=found.code.value,
            turn=found.turn,
            message=found.message,
            strict=found.code in STRICT,
            passage=_begin(policy_pieces, starts[found.turn - 1] + found.start)
            if 0 < found.turn <= len(starts)
            else None,
        )
        for found in parsed.violations[:MAX_VIOLATIONS]
    )
