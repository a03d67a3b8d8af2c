"""A reading of a trajectory: turns, stages, citations and violations, each derived once from the recorded text.

`find_boundaries` gives the stages both for the policy's tokens and for the judge. The judge prompt of the paper
(section C.3) settles what the main text leaves open (choices A4-A8):
- Plan: from the start through the end of the first structured plan, if it comes before the first tool call.
- Research: from there to the review. Revised plans, and reviews that a further tool call follows, are Research.
- Review: the last review with no tool call after it, from the last thought before it.
- Answer: everything after the review once there is an answer; without a review, from the opening tag.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from rubricem_env.domain.base import STAGES, Span, Stage, StageSpans
from rubricem_env.domain.trajectory import Origin, Segment, ToolCall, Trajectory
from rubricem_env.scaffold.grammar import (
    ANSWER,
    CALL_TOOL,
    PLAN,
    REVIEW,
    SECTIONS,
    SNIPPET,
    STATE_EVALUATION,
    STRICT,
    THINK,
    Code,
    Violation,
    violation,
)
from rubricem_env.scaffold.lexer import Token, find_citation_tags, find_structure, parse_attributes
from rubricem_env.scaffold.parser import Block, EmissionStream, Turn, parse_turn, read_regular_turn
from rubricem_env.scaffold.untrusted import is_inert

ReviewStart = Literal["think", "review_tag"]
"""Where the Review stage begins; the final state evaluation goes with it under "think"."""


Placed = tuple[int, Block, Turn]
"""A block after the place in the policy's joined text where it begins, and before its turn."""


def _placed(turns: Sequence[Turn]) -> tuple[Placed, ...]:
    placed = []
    offset = 0
    for turn in turns:
        for block in turn.blocks:
            placed.append((offset + block.start, block, turn))
        offset += len(turn.text)
    return tuple(placed)


def find_boundaries(turns: Sequence[Turn], *, review_start: ReviewStart = "think") -> StageSpans:
    """Partition the turns' joined text into stages; a stage that never happened gets no span."""
    blocks = _placed(turns)
    return _boundaries(turns, blocks, _find_answer(turns, blocks), review_start)


def _boundaries(
    turns: Sequence[Turn], blocks: Sequence[Placed], answer: Placed | None, review_start: ReviewStart
) -> StageSpans:
    size = sum(len(turn.text) for turn in turns)
    plan_end = _plan_end(blocks)
    begins = size if answer is None else answer[0]
    review = _find_review(blocks, begins, plan_end)
    if review is None:
        cuts = (0, plan_end, begins, begins, size)
    else:
        review_from = review.start
        if review_start == "think":
            review_from = _last_thought_before(blocks, review, plan_end)
        cuts = (0, plan_end, review_from, size if answer is None else review.end, size)
    spans = zip(STAGES, pairwise(cuts), strict=True)
    return {stage: Span(start, end) for stage, (start, end) in spans if end > start}


def _plan_end(blocks: Iterable[Placed]) -> int:
    """The end of the first plan; 0 if none comes before the first tool call."""
    for start, block, turn in blocks:
        if block.name == PLAN:
            return start + block.end - block.start
        if turn.has_action and block.name in (CALL_TOOL, ANSWER):
            return 0
    return 0


def _find_answer(turns: Sequence[Turn], blocks: Sequence[Placed]) -> Placed | None:
    """The answer that ends the episode, or the unclosed one at the end of the text."""
    answers = [placed for placed in blocks if placed[1].name == ANSWER]
    closed = next((placed for placed in answers if placed[2].answer is not None), None)
    return closed or next((placed for placed in answers[-1:] if placed[2] is turns[-1]), None)


def _find_review(blocks: Sequence[Placed], limit: int, plan_end: int) -> Span | None:
    """The last review before the limit, which is the answer or the end, that no tool call follows."""
    for start, block, turn in reversed(blocks):
        if start < limit and turn.call is not None:
            return None
        if block.name == REVIEW and plan_end <= start < limit:
            return Span(start, start + block.end - block.start)
    return None


def _last_thought_before(blocks: Sequence[Placed], review: Span, plan_end: int) -> int:
    """The start of the last thought since the last tool call, review or plan; without one, the review's own."""
    for start, block, _ in reversed(blocks):
        if start >= review.start:
            continue
        if start < plan_end or block.name in (REVIEW, CALL_TOOL):
            return review.start
        if block.name == THINK:
            return start
    return review.start


_ID = re.compile(r"[^,;\s]+")
_UNQUOTED_IDS = re.compile(r"\sids?\s*=\s*([\w:.-]+(?:\s*[,;]\s*[\w:.-]+)+)\s*/?$", re.IGNORECASE)
"""Several ids without quotes; spaces between them would end an unquoted value."""
_REGULAR = re.compile(r'(<cite id="([^"<>]{0,2000}+)">)([^<]*+)</cite>')
"""The usual form; an answer with no other form is read with this alone."""


class Citation(NamedTuple):
    """One citation tag in an answer."""

    ids: tuple[str, ...]
    claim: str
    written: str
    """The opening tag as written."""
    start: int
    """In the answer's text."""
    end: int

    @property
    def is_empty(self) -> bool:
        return not self.ids or not self.claim.strip()


class Citations(NamedTuple):
    """An answer's citations, resolved. Ids are listed once, in order of first use."""

    known: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Never shown by a tool in this episode: invented, misspelt, or written by the policy itself."""
    empty: tuple[Citation, ...] = ()
    """Without an id, or around no text."""


def find_citations(answer: str) -> Iterator[Citation]:
    """Every citation tag of an answer. An unclosed one reaches to the next tag or the end."""
    regular = list(_REGULAR.finditer(answer))
    if 2 * len(regular) == answer.count("<"):
        for match in regular:
            yield Citation(tuple(_ID.findall(match[2])), match[3], match[1], match.start(), match.end())
        return
    yield from find_any_citations(answer)


def find_any_citations(answer: str) -> Iterator[Citation]:
    """The same, tag by tag, for citations of any form."""
    tags = find_citation_tags(answer)
    for index, token in enumerate(tags):
        if token.closing:
            continue
        following = tags[index + 1] if index + 1 < len(tags) else None
        until = token.end if token.empty else (following.start if following else len(answer))
        end = following.end if following is not None and following.closing and not token.empty else until
        yield Citation(_ids(token), answer[token.end : until], answer[token.start : token.end], token.start, end)


def _ids(token: Token) -> tuple[str, ...]:
    unquoted = _UNQUOTED_IDS.search(token.attributes) if '"' not in token.attributes else None
    if unquoted is not None:
        return tuple(_ID.findall(unquoted[1]))
    attributes = parse_attributes(token)[0]
    return tuple(_ID.findall(attributes.get("id") or attributes.get("ids") or ""))


def resolve_citations(answer: str, shown: Collection[str]) -> Citations:
    """Sort the ids that the answer cites into shown and not shown."""
    known: dict[str, None] = {}
    unknown: dict[str, None] = {}
    empty: list[Citation] = []
    for citation in find_citations(answer):
        if citation.is_empty:
            empty.append(citation)
        for snippet_id in citation.ids:
            (known if snippet_id in shown else unknown)[snippet_id] = None
    return Citations(tuple(known), tuple(unknown), tuple(empty))


def shown_snippets(segments: Iterable[Segment]) -> frozenset[str]:
    """The ids of all snippets that tools have shown.

    They come from the episode's observations if there are any, as far as the text bears them out; in files from
    elsewhere from the tool text. A snippet tag inside another snippet is page text, not a snippet. Policy text never
    counts.
    """
    shown: set[str] = set()
    for segment in segments:
        if segment.origin is not Origin.TOOL:
            continue
        if segment.observation is not None:
            shown.update(_held_ids(segment.text, segment.observation.snippet_ids))
        else:
            shown.update(_written_ids(segment.text))
    return frozenset(shown)


def _held_ids(text: str, snippet_ids: Iterable[str]) -> Iterator[str]:
    """Those of the ids whose snippets stand in the text."""
    at = 0
    for snippet_id in snippet_ids:
        tag = f'<{SNIPPET} id="{snippet_id}">'
        # A tool writes them in order; so most often the text is read once.
        found = text.find(tag, at)
        if found >= 0:
            at = found
        elif tag not in text:
            continue
        yield snippet_id


def _written_ids(text: str) -> Iterator[str]:
    inside = False
    for token in find_structure(text):
        if token.name != SNIPPET:
            continue
        if token.closing:
            inside = False
        elif not inside:
            inside = not token.empty
            snippet_id = parse_attributes(token)[0].get("id", "")
            if snippet_id:
                yield snippet_id


MAX_CONSECUTIVE_TOOL_ERRORS = 1
"""Two in a row are rejected in data generation; one, with a recovery, teaches resilience (paper, section B.2)."""


def turn_violations(turns: Sequence[Turn]) -> Iterator[Violation]:
    """The violations of each turn: first those of the emission itself, then those of order."""
    has_planned = has_searched = has_reviewed = False
    for turn in turns:
        yield from turn.violations
        yield from _opening(turn)
        if not has_planned:
            yield from _first_plan(turn)
            has_planned = turn.has_action or turn.first(PLAN) is not None
        if has_searched:
            yield from _after_search(turn, has_reviewed)
        if turn.answer is not None:
            yield from _answer_in_place(turn, has_searched, has_reviewed)
        has_reviewed = turn.call is None and (has_reviewed or turn.first(REVIEW) is not None)
        has_searched = has_searched or turn.call is not None


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
    review, state = turn.last(REVIEW), turn.last(STATE_EVALUATION)
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


_MAKERS = {
    Stage.PLAN: (PLAN,),
    Stage.RESEARCH: (CALL_TOOL, STATE_EVALUATION),
    Stage.REVIEW: (REVIEW,),
    Stage.ANSWER: (ANSWER,),
}
"""The blocks that make a stage. Thoughts alone are not research."""


class ParsedTrajectory(NamedTuple):
    """A trajectory with its turns, stages, answer, citations and violations."""

    trajectory: Trajectory
    turns: tuple[Turn, ...]
    spans: StageSpans
    """In the policy's joined text."""
    policy_text: str
    answer: str | None
    """The text inside the answer tags, also if it is truncated; None if no answer was begun."""
    is_complete: bool
    """The policy closed an answer."""
    citations: Citations
    violations: tuple[Violation, ...]
    shown: frozenset[str]
    """The ids of all snippets that tools have shown."""
    blocks: tuple[Placed, ...]
    """All blocks of the turns."""

    def stage_text(self, stage: Stage) -> str:
        return self.spans[stage].of(self.policy_text) if stage in self.spans else ""

    def happened(self, stage: Stage) -> bool:
        """Whether the stage can be judged: one of its tags was opened in it and is not empty (choice A10)."""
        return any(block.inner(text).strip() for block, text in self._blocks_of(stage))

    def breaks_off(self, stage: Stage) -> bool:
        """Whether the tag that makes the stage was never closed (choice A10). Always False for Research, which has many."""
        makers = [block for block, _ in self._blocks_of(stage)]
        return stage is not Stage.RESEARCH and bool(makers) and not makers[0].is_closed

    def _blocks_of(self, stage: Stage) -> Iterator[tuple[Block, str]]:
        """The blocks that make the stage, each with the text of its turn."""
        own = self.spans.get(stage, Span(0, 0))
        for start, block, turn in self.blocks:
            if block.name in _MAKERS[stage] and own.start <= start < own.end:
                yield block, turn.text

    @property
    def rejections(self) -> tuple[Violation, ...]:
        """The violations for which data generation rejects this trajectory; empty means accepted."""
        return tuple(found for found in self.violations if found.code in STRICT)


def parse_trajectory(
    trajectory: Trajectory, *, turns: Sequence[Turn] | None = None, review_start: ReviewStart = "think"
) -> ParsedTrajectory:
    """Parse a trajectory; give `turns` if the episode has parsed them already."""
    read = tuple(turns) if turns is not None else parse_turns(trajectory)
    blocks = _placed(read)
    found = _find_answer(read, blocks)
    spans = _boundaries(read, blocks, found, review_start)
    answer = None if found is None else found[1].inner(found[2].text).strip()
    is_complete = any(turn.answer is not None for turn in read)
    shown = shown_snippets(trajectory.segments)
    citations = resolve_citations(answer or "", shown)
    violations = (*turn_violations(read), *trajectory_violations(trajectory, read, citations))
    policy_text = "".join(turn.text for turn in read)
    return ParsedTrajectory(
        trajectory, read, spans, policy_text, answer, is_complete, citations, violations, shown, blocks
    )


def answered_calls(parsed: ParsedTrajectory) -> Iterator[tuple[Segment, ToolCall | None]]:
    """Each tool segment with the call that the policy wrote in the turn before it; None where it wrote none."""
    turns = iter(parsed.turns)
    written = consumed = 0
    for segment in parsed.trajectory.segments:
        if segment.origin is Origin.POLICY:
            written += len(segment.text)
        elif segment.origin is Origin.TOOL:
            call = None
            while consumed < written and (turn := next(turns, None)) is not None:
                consumed += len(turn.text)
                call = turn.call
            yield segment, call


def is_same_query(first: ToolCall, second: ToolCall) -> bool:
    """Whether two calls have one query; a repaired call has another name or other parameters."""
    return first.identity[1] == second.identity[1]


def unfounded_claims(parsed: ParsedTrajectory) -> tuple[str, ...]:
    """What a file claims of its observations and its own texts contradict, a sentence each.

    Whether a tool has said what stands in a text cannot be known without another search.
    """
    claims = []
    for number, (segment, call) in enumerate(answered_calls(parsed), 1):
        seen = segment.observation
        if seen is None or seen.status is None:
            continue
        held = set(_held_ids(segment.text, seen.snippet_ids))
        if missing := [found for found in seen.snippet_ids if found not in held]:
            claims.append(
                f"observation {number} claims the snippets {', '.join(missing)}, which its text does not hold."
            )
        if seen.call is not None and (call is None or not is_same_query(seen.call, call)):
            claims.append(
                f"observation {number} claims a call that the policy did not write: {seen.call.query[:80]!r}."
            )
        if not is_inert(segment.text):
            claims.append(f"observation {number} holds tags that a tool's text cannot hold.")
    return tuple(claims)


def parse_turns(trajectory: Trajectory) -> tuple[Turn, ...]:
    """Every turn of a recorded trajectory, numbered from 1.

    Adjacent policy segments are one turn until an action closes in one of them. So a record that is split into pieces
    reads like the whole, and a record without tool output still has its turns.
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
                if segment.cut:
                    # With the violations of the cut text included; the text is the kept one.
                    written = parse_turn(turn.text + segment.cut, turn.number)
                    turn = written._replace(text=turn.text) if written.end == len(turn.text) else turn
                turns.append(turn)
                stream = None
        elif stream is not None:
            turns.append(stream.close())
            stream = None
    return tuple(turns) if stream is None else (*turns, stream.close())
