"""A trajectory cut into its pieces, in order: what each is, who wrote it, and where it lies in the policy's text.

Places in a text as JavaScript counts them: in UTF-16 units, of which a character beyond U+FFFF has two.

The pieces of a trajectory as elements of the API: with sections, calls, snippets and citations, cut to a size.

Where a judge's reason quotes the trajectory: the passages, found again in the policy's own words.

What was said of each stage of a trajectory: score, verdicts with the passages that they quote, credit, truth.

One trajectory of a run as the API tells it, and its tokens.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from rubricem_agent.learn.record import GroupEntry, RolloutEntry, ShownLesson
from rubricem_agent.rollout.report import sources_in
from rubricem_agent.rollout.tokens import stage_lookup
from rubricem_agent.viewer.api_trajectories import (
    Band,
    CallView,
    CitationView,
    CostView,
    Element,
    ElementKind,
    ElementText,
    LessonView,
    Place,
    ResultView,
    RubricView,
    SectionView,
    SnippetView,
    StageView,
    TokenPage,
    TrajectoryRow,
    TrajectoryView,
    VerdictView,
    ViolationView,
)
from rubricem_agent.viewer.records import number_or_none
from rubricem_env.domain.base import STAGES, Span, Stage
from rubricem_env.domain.judgement import Polarity, Rubric, StageScore, Unscored
from rubricem_env.domain.trajectory import Origin, Segment, ToolCall
from rubricem_env.judge.scoring import Opinion, fulfillment
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, PLAN, REVIEW, RULES, STATE_EVALUATION, THINK
from rubricem_env.scaffold.parser import Block, Turn
from rubricem_env.scaffold.reading import Reading, find_citations, read_trajectory, shown_snippets

_KINDS: dict[str, ElementKind] = {
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

    kind: ElementKind
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


def cut_trajectory(reading: Reading) -> tuple[ElementSegment, ...]:
    """All pieces in the order of the record."""
    cutter = _Cutter(reading)
    return tuple(piece for segment in reading.trajectory.segments for piece in cutter.cut(segment))


class _Cutter:
    """Walks the segments, with each turn where its first one stands."""

    def __init__(self, reading: Reading) -> None:
        self._turns = reading.turns
        self._stage_at = stage_lookup(reading.spans)
        self._next = 0
        self._turn_start = 0
        self._position = 0

    def cut(self, segment: Segment) -> Iterator[ElementSegment]:
        number = self._next
        if segment.origin is Origin.PROMPT:
            yield ElementSegment("prompt", segment.text, 0)
        elif segment.origin is Origin.TOOL:
            is_notice = segment.observation is not None and segment.observation.status is None
            text = _FRAME.sub("", segment.text)
            yield ElementSegment("notice" if is_notice else "result", text, number, self._last_stage(), segment=segment)
        else:
            self._position += len(segment.text)
            while self._next < len(self._turns) and self._turn_start < self._position:
                yield from self._turn(self._turns[self._next])
            if segment.cut:
                yield ElementSegment("cut", segment.cut, self._next, self._last_stage())

    def _turn(self, turn: Turn) -> Iterator[ElementSegment]:
        begin = self._turn_start
        self._next += 1
        self._turn_start += len(turn.text)
        at = 0
        for block in turn.blocks:
            yield from self._loose(turn, at, block.start, begin=begin)
            yield self._block(turn, block, begin=begin)
            at = block.end
        yield from self._loose(turn, at, len(turn.text), begin=begin)

    def _block(self, turn: Turn, block: Block, *, begin: int) -> ElementSegment:
        start, end = _stripped(turn.text, block.inner_start, block.inner_end)
        kind = _KINDS.get(block.name, "text")
        return ElementSegment(
            kind,
            turn.text[start:end],
            turn.number,
            self._stage_at(begin + block.start),
            begin + start,
            block.is_closed,
            tuple(_section(turn.text, part, start) for part in block.sections),
            turn.call if kind == "call" else None,
        )

    def _loose(self, turn: Turn, start: int, end: int, *, begin: int) -> Iterator[ElementSegment]:
        """Text between the blocks, where there is any."""
        start, end = _stripped(turn.text, start, end)
        if start < end:
            yield ElementSegment(
                "text", turn.text[start:end], turn.number, self._stage_at(begin + start), begin + start
            )

    def _last_stage(self) -> Stage:
        return self._stage_at(max(self._turn_start - 1, 0))


def _section(text: str, block: Block, origin: int) -> tuple[str, int, int]:
    start, end = _stripped(text, block.inner_start, block.inner_end)
    return block.name, start - origin, end - origin


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """The same range without blanks at its ends."""
    inner = text[start:end]
    start += len(inner) - len(inner.lstrip())
    return start, start + len(inner.strip())


def stage_runs(pieces: Sequence[ElementSegment]) -> Iterator[tuple[Stage, int, int]]:
    """Stretches of pieces of one stage: the stage, the first piece and the last."""
    first = 0
    for number, piece in enumerate(pieces):
        if number + 1 < len(pieces) and pieces[number + 1].stage is piece.stage:
            continue
        if piece.stage is not None:
            yield piece.stage, first, number
        first = number + 1


_BMP_END = "\uffff"


class Utf16:
    """Translates character offsets of one text."""

    def __init__(self, text: str) -> None:
        wide = [] if text.isascii() else [place for place, char in enumerate(text) if char > _BMP_END]
        self._wide = wide
        self.length = len(text) + len(wide)
        """Of the whole text, in units."""

    def at(self, offset: int) -> int:
        """The unit at which the character `offset` begins."""
        return offset + bisect_left(self._wide, offset)

    def character(self, unit: int) -> int:
        """The character that a unit belongs to."""
        character = unit - len(self._wide)
        while self.at(character + 1) <= unit:
            character += 1
        return max(character, 0)


MAX_TEXT = 20_000
MAX_SNIPPET = 8_000
MAX_ELEMENTS = 200
MAX_CITATIONS = 500
_SNIPPET = re.compile(r'<snippet id="([^"]{1,40})">(.*?)</snippet>\n?', re.DOTALL)


class ElementMaker:
    """Makes the elements of one trajectory."""

    def __init__(self, pieces: Sequence[ElementSegment], *, cited: Collection[str], shown: Collection[str]) -> None:
        self._pieces = pieces
        self._cited = frozenset(cited)
        self._shown = frozenset(shown)
        self._repeated = _repeated_calls(pieces)

    def page(self, first: int) -> tuple[Element, ...]:
        """At most `MAX_ELEMENTS` from one on."""
        last = min(first + MAX_ELEMENTS, len(self._pieces))
        return tuple(self._element(number) for number in range(first, last))

    def _element(self, number: int) -> Element:
        piece = self._pieces[number]
        units = Utf16(piece.text)
        text = _SNIPPET.sub("", piece.text).strip() if piece.kind == "result" else piece.text
        return Element(
            index=number,
            kind=piece.kind,
            stage=piece.stage.value if piece.stage else "",
            turn=piece.turn,
            text=text[:MAX_TEXT],
            length=units.length,
            closed=piece.is_closed,
            sections=tuple(
                SectionView(name=name, text=piece.text[start:end][:MAX_TEXT], start=units.at(start), end=units.at(end))
                for name, start, end in piece.sections
            ),
            call=self._call(number),
            result=self._result(piece.segment) if piece.segment is not None else None,
            citations=self._citations(piece.text, units) if piece.kind == "answer" else (),
        )

    def _call(self, number: int) -> CallView | None:
        call = self._pieces[number].call
        if call is None:
            return None
        return CallView(
            tool=call.name, query=call.query[:MAX_TEXT], parameters=call.parameters, repeated=number in self._repeated
        )

    def _result(self, segment: Segment) -> ResultView:
        sources = sources_in(segment.text)
        snippets = []
        for snippet_id, body in _SNIPPET.findall(segment.text):
            title, url = sources[snippet_id]
            snippets.append(
                SnippetView(
                    id=snippet_id,
                    title=title,
                    url=url,
                    text=(body.partition("\n")[2] if title or url else body)[:MAX_SNIPPET],
                    cited=snippet_id in self._cited,
                )
            )
        status = segment.observation.status if segment.observation is not None else None
        return ResultView(status=status.value if status else "", snippets=tuple(snippets))

    def _citations(self, answer: str, units: Utf16) -> tuple[CitationView, ...]:
        found = list(find_citations(answer))[:MAX_CITATIONS]
        return tuple(
            CitationView(
                ids=citation.ids,
                claim=citation.claim[:MAX_TEXT],
                start=units.at(citation.start),
                end=units.at(citation.end),
                known=tuple(one for one in citation.ids if one in self._shown),
            )
            for citation in found
        )


def make_bands(pieces: Sequence[ElementSegment]) -> tuple[Band, ...]:
    """The stages as runs of elements."""
    return tuple(Band(stage=stage.value, first=first, last=last) for stage, first, last in stage_runs(pieces))


def element_text(pieces: Sequence[ElementSegment], number: int, *, offset: int) -> ElementText:
    """A part of an element's text from a UTF-16 offset on; of a tool's answer, the whole observation."""
    text = pieces[number].text
    units = Utf16(text)
    start = units.character(min(offset, units.length))
    part = text[start : start + MAX_TEXT]
    end = start + len(part)
    return ElementText(
        index=number,
        offset=units.at(start),
        text=part,
        next_offset=units.at(end) if end < len(text) else None,
    )


def _repeated_calls(pieces: Sequence[ElementSegment]) -> frozenset[int]:
    """The calls that ask the same thing as an earlier one."""
    asked = set()
    repeated = set()
    for number, piece in enumerate(pieces):
        if piece.call is not None:
            if piece.call.identity in asked:
                repeated.add(number)
            asked.add(piece.call.identity)
    return frozenset(repeated)


_QUOTED = re.compile(r'“([^”]{2,400})”|"([^"]{2,400})"|«([^»]{2,400})»')
_MOST = 8


class Passages(NamedTuple):
    """The policy's pieces by where they begin in its text."""

    starts: Sequence[int]
    numbers: Sequence[int]
    pieces: Sequence[ElementSegment]

    @classmethod
    def of(cls, pieces: Sequence[ElementSegment]) -> "Passages":
        own = [(piece.start, number) for number, piece in enumerate(pieces) if piece.start >= 0]
        return cls([start for start, _ in own], [number for _, number in own], pieces)

    def place(self, start: int, end: int) -> Place | None:
        """A range of the policy's text as a place in an element; None where it begins between two of them."""
        found = bisect_right(self.starts, start) - 1
        if found < 0:
            return None
        number = self.numbers[found]
        piece = self.pieces[number]
        if start >= piece.end:
            return None
        units = Utf16(piece.text)
        last = min(end, piece.end)
        return Place(element=number, start=units.at(start - piece.start), end=units.at(last - piece.start))

    def begin(self, start: int) -> Place | None:
        """Where something begins: in an element, or at the start of the next one."""
        found = self.place(start, start)
        following = bisect_right(self.starts, start)
        if found is None and following < len(self.starts):
            return Place(element=self.numbers[following], start=0, end=0)
        return found


def find_quotations(reason: str, policy_text: str, *, spans: Sequence[Span], passages: Passages) -> tuple[Place, ...]:
    """The quoted passages of a reason, each where it first stands: in the stage's spans, or else anywhere."""
    places = []
    for groups in _QUOTED.findall(reason)[:_MOST]:
        quoted = next(filter(None, groups)).strip().rstrip("….")
        start = _find(quoted, policy_text, spans)
        place = passages.place(start, start + len(quoted)) if start >= 0 and quoted else None
        if place is not None and place not in places:
            places.append(place)
    return tuple(places)


def _find(quoted: str, text: str, spans: Sequence[Span]) -> int:
    for span in spans:
        found = text.find(quoted, span.start, span.end)
        if found >= 0:
            return found
    return text.find(quoted)


def rubric_view(rubric: Rubric) -> RubricView:
    return RubricView(
        id=rubric.id,
        stage=rubric.stage.value,
        title=rubric.title,
        description=rubric.description,
        polarity="positive" if rubric.polarity is Polarity.POSITIVE else "negative",
        weight=rubric.weight,
        persistent=rubric.persistent,
        step=rubric.provenance.step,
        model=rubric.provenance.model,
    )


def rubrics_of(group: GroupEntry) -> dict[str, Rubric]:
    """Every rubric that a group knows, by id."""
    known = [*group.rubrics, *(entry.rubric for entry in group.active), *(gone.last.rubric for gone in group.retired)]
    return {rubric.id: rubric for rubric in known}


class StageViews:
    """Makes the views of one rollout."""

    def __init__(self, entry: RolloutEntry, reading: Reading, *, rubrics: Mapping[str, Rubric], passages: Passages):
        self._entry = entry
        self._reading = reading
        self._rubrics = rubrics
        self._passages = passages

    def make(self) -> tuple[StageView, ...]:
        """All four, in their order."""
        return tuple(self._stage(stage) for stage in STAGES)

    def _stage(self, stage: Stage) -> StageView:
        entry, place = self._entry, stage.position
        outcome = entry.judged.judgement.outcome(stage)
        return StageView(
            stage=stage.value,
            happened=self._reading.happened(stage),
            score=number_or_none(outcome.score) if isinstance(outcome, StageScore) else None,
            unscored=outcome.reason.value if isinstance(outcome, Unscored) else "",
            detail=outcome.detail if isinstance(outcome, Unscored) else "",
            true=entry.true[place] if entry.true else None,
            returned=number_or_none(entry.returns[place]) if entry.returns else None,
            advantage=number_or_none(entry.advantages[place]) if entry.advantages else None,
            verdicts=self._verdicts(stage),
        )

    def _verdicts(self, stage: Stage) -> tuple[VerdictView, ...]:
        """One for each opinion on a rubric of this stage, in the order of the rubrics."""
        opinions = {opinion.rubric_id: opinion for opinion in self._entry.judged.opinions}
        return tuple(
            self._verdict(rubric, opinions[rubric.id])
            for rubric in self._rubrics.values()
            if rubric.stage is stage and rubric.id in opinions
        )

    def _verdict(self, rubric: Rubric, opinion: Opinion) -> VerdictView:
        return VerdictView(
            rubric=rubric_view(rubric),
            mark=opinion.mark,
            marks=opinion.marks,
            fulfilled=fulfillment(rubric, opinion.mark),
            reason=opinion.justification,
            places=find_quotations(
                opinion.justification,
                self._reading.policy_text,
                spans=self._reading.spans.of(rubric.stage),
                passages=self._passages,
            ),
        )


MAX_TOKENS = 5_000
MAX_VIOLATIONS = 500
MAX_QUESTION = 20_000


def view_rollout(
    row: TrajectoryRow, entry: RolloutEntry, group: GroupEntry, *, siblings: tuple[str, ...], from_element: int = 0
) -> TrajectoryView:
    """A rollout of training with its group; `siblings` are the ids of the group's rollouts."""
    reading = read_trajectory(entry.rollout.trajectory)
    passages = Passages.of(cut_trajectory(reading))
    view = view_trajectory(reading, row, from_element=from_element)
    return view.model_copy(
        update={
            "row": row.model_copy(update={"question": group.question[:MAX_QUESTION]}),
            "policy": entry.rollout.policy,
            "prompt_hash": entry.rollout.prompt_hash,
            "temperature": entry.rollout.temperature,
            "failure": entry.rollout.failure,
            "judge": group.judge,
            "judge_failure": entry.judged.failure,
            "encounter": group.encounter,
            "trained": entry.trained,
            "lessons": lesson_views(group.lessons),
            "bait": entry.judged.bait,
            "stages": StageViews(entry, reading, rubrics=rubrics_of(group), passages=passages).make(),
            "cost": view.cost.model_copy(
                update={
                    "input_tokens": entry.rollout.usage.input_tokens,
                    "output_tokens": entry.rollout.usage.output_tokens,
                }
            ),
            "num_tokens": entry.tokens.length if entry.tokens else 0,
            "siblings": siblings,
        }
    )


def view_trajectory(reading: Reading, row: TrajectoryRow, *, from_element: int = 0) -> TrajectoryView:
    """What a trajectory says by itself, without a judge."""
    pieces = cut_trajectory(reading)
    shown = shown_snippets(reading.trajectory.segments)
    maker = ElementMaker(pieces, cited=(*reading.citations.known, *reading.citations.unknown), shown=shown)
    return TrajectoryView(
        row=row,
        policy="",
        prompt_hash="",
        temperature=None,
        seed=reading.trajectory.seed,
        failure="",
        judge="",
        judge_failure="",
        encounter="",
        trained=None,
        lessons=(),
        bait=(),
        bands=make_bands(pieces),
        elements=maker.page(from_element),
        elements_total=len(pieces),
        stages=(),
        violations=_violations(reading, Passages.of(pieces)),
        unknown_citations=reading.citations.unknown[:MAX_VIOLATIONS],
        cost=CostView(
            calls=sum(turn.call is not None for turn in reading.turns),
            turns=len(reading.turns),
            input_tokens=0,
            output_tokens=0,
            seconds=None,
            dollars=None,
        ),
        num_tokens=0,
        siblings=(),
    )


def lesson_views(lessons: Sequence[ShownLesson]) -> tuple[LessonView, ...]:
    return tuple(LessonView(item=lesson.item, similarity=lesson.similarity) for lesson in lessons)


def view_tokens(entry: RolloutEntry, vocabulary: Sequence[str], *, offset: int, limit: int) -> TokenPage:
    """Tokens from `offset` on, with the advantage of the stage that each belongs to.

    Raises:
        FileFormatError: the recorded tokens are damaged.
    """
    if entry.tokens is None:
        return TokenPage(total=0, offset=0, prompt_length=0, texts=(), stages=(), logprobs=(), advantages=())
    end = offset + min(limit, MAX_TOKENS)
    ids, stages, logprobs = (column[offset:end] for column in entry.tokens.unpack())
    credit = (*(entry.advantages or (None,) * 4), None)
    return TokenPage(
        total=entry.tokens.length,
        offset=offset,
        prompt_length=entry.tokens.prompt_length,
        texts=tuple(vocabulary[one] if 0 <= one < len(vocabulary) else f"#{one}" for one in ids.tolist()),
        stages=tuple(stages.tolist()),
        logprobs=tuple(
            round(value, 3) if stage >= 0 else None
            for value, stage in zip(logprobs.tolist(), stages.tolist(), strict=True)
        ),
        advantages=tuple(credit[stage] if -1 <= stage < 4 else None for stage in stages.tolist()),
    )


def _violations(reading: Reading, passages: Passages) -> tuple[ViolationView, ...]:
    starts = [0]
    for turn in reading.turns:
        starts.append(starts[-1] + len(turn.text))
    return tuple(
        ViolationView(
            code=found.code.value,
            turn=found.turn,
            message=found.message,
            strict=RULES[found.code].strict,
            place=passages.begin(starts[found.turn - 1] + found.start) if 0 < found.turn <= len(starts) else None,
        )
        for found in reading.violations[:MAX_VIOLATIONS]
    )
