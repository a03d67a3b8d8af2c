"""What a judge model is shown, and how its replies are read.

A trajectory is rendered as JSON by stage, within a limit of tokens, with repeats of the bank's reference block left out;
the prompt segment, and with it the block itself, is never shown. All content stands between delimiter lines that it
cannot contain. Replies are requested by a schema and still checked entry by entry.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import ValidationError, create_model

from rubricem_env.domain.base import STAGES, Frozen, Span, Stage, UnitScore
from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.judgement import Score
from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.copies import ShownText
from rubricem_env.scaffold.grammar import RESERVED, SNIPPET
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.scaffold.untrusted import defuse, inert_tool_text
from rubricem_env.tools.render import estimate_tokens


def digest(text: str) -> str:
    """The start of the text's SHA-256, which identifies a prompt."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


REPEATED = "[reference block repeated]"
_BLOCK = "reference_examples"
_NAMES = "|".join(sorted(RESERVED, key=len, reverse=True))
_TAG = re.compile(rf"<\s*+(/?)\s*+({_NAMES})(?![\w-])[^<>]*+>", re.IGNORECASE | re.ASCII)


def find_repeats(parsed: ParsedTrajectory) -> tuple[Span, ...]:
    """The spans of the policy's text that repeat the reference block of the prompt, in order.

    Only long runs of the block's own words count, and only after a tag of its name, closed or not. So a policy cannot
    hide other text, and a lesson in its own words is judged with its plan.
    """
    segments = parsed.trajectory.segments
    prompt = "".join(segment.text for segment in segments if segment.origin is Origin.PROMPT)
    block = ShownText(span.of(prompt) for span in _after_openings(prompt))
    written = parsed.policy_text
    return tuple(
        Span(span.start + found.start, span.start + found.end)
        for span in _after_openings(written)
        for found in block.find_copies(span.of(written))
    )


def leave_out(repeats: tuple[Span, ...], text: str, *, within: Span) -> str:
    """The text within the span, with each repeat replaced by a note."""
    kept = []
    start = within.start
    for span in repeats:
        if span.start < within.end and within.start < span.end:
            kept += [text[start : max(start, span.start)], REPEATED]
            start = min(span.end, within.end)
    return "".join((*kept, text[start : within.end]))


def _after_openings(text: str) -> Iterator[Span]:
    """What follows each opening tag of the block, up to the next reserved tag."""
    tags = list(_TAG.finditer(text))
    for tag, following in zip_longest(tags, tags[1:]):
        if not tag[1] and tag[2].lower() == _BLOCK:
            yield Span(tag.end(), following.start() if following else len(text))


_WIDE_BREAK = re.compile("[\x85\u2028\u2029]")


def delimit(contents: Sequence[tuple[str, object]], seed: int) -> str:
    """One labelled block for each (label, content), as JSON between two delimiter lines.

    The nonce of a block depends on it and on those before it, so prompts that begin alike share that beginning, which
    servers cache. None stands anywhere in the content. JSON escapes line breaks, so no line of the content can look like
    a delimiter. Control tokens are made inert.
    """
    blocks = [(label, _dump(_defuse_all(content))) for label, content in contents]
    body = f"[{', '.join(block for _, block in blocks)}]"
    nonce, delimited = str(seed), []
    for label, block in blocks:
        before, attempt = nonce, 0
        while (nonce := digest(f"{before}\0{attempt}\0{block}")) in body:
            attempt += 1
        delimited.append(f"<<<BEGIN {label} {nonce}>>>\n{block}\n<<<END {label} {nonce}>>>")
    return "\n\n".join(delimited)


def _defuse_all(content: object) -> object:
    if isinstance(content, str):
        return defuse(content)
    if isinstance(content, Mapping):
        return {name: _defuse_all(part) for name, part in content.items()}
    return [_defuse_all(part) for part in content] if isinstance(content, list | tuple) else content


def _dump(content: object) -> str:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    # JSON escapes the line breaks below U+0020; these three also break lines for some readers.
    return text if text.isascii() else _WIDE_BREAK.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_INJECTIONS = {
    kind: re.compile("|".join(patterns), re.I)
    for kind, patterns in json.loads(package_text("rubricem_env.judge", "injections.json")).items()
}
"""Narrow on purpose: "the interest rate was 2 %" and "the top score of the match" are ordinary sentences."""


def find_injections(text: str) -> tuple[str, ...]:
    """The kinds of text that address the judge instead of the reader, in a fixed order. They change no score."""
    return tuple(kind for kind, pattern in _INJECTIONS.items() if pattern.search(text))


# No field of a reply has a default, as strict server schemas demand.
class WireRubric(Frozen):
    title: str
    description: str
    weight: int


_Rubrics = list[WireRubric]
WireStage = create_model("WireStage", __base__=Frozen, positive_rubrics=_Rubrics, negative_rubrics=_Rubrics)
WireProposal = create_model(
    "WireProposal", __base__=Frozen, stage_1=WireStage, stage_2=WireStage, stage_3=WireStage, stage_4=WireStage
)


class WireScore(Frozen):
    index: int
    justification: str
    score: Score


class WireReflectionScore(Frozen):
    index: int
    justification: str
    diagnostic_accuracy: UnitScore
    specificity: UnitScore
    scope_and_balance: UnitScore


class WirePurpose(Frozen):
    index: int
    justification: str
    purpose: Literal["research", "reader", "promotion", "other"]


WireScores = create_model("WireScores", __base__=Frozen, scores=list[WireScore])
WireReflectionScores = create_model("WireReflectionScores", __base__=Frozen, scores=list[WireReflectionScore])
WirePurposes = create_model("WirePurposes", __base__=Frozen, scores=list[WirePurpose])
Item = TypeVar("Item", WireScore, WireReflectionScore, WirePurpose)


def read_entries(
    reply: Mapping[str, object], kind: type[Item], *, asked: Collection[int]
) -> tuple[dict[int, Item], bool]:
    """The usable entries by index, and whether they are exactly the requested ones.

    An entry whose score has the wrong type (1.0, true, "2", NaN) is not usable. Neither is an index given twice, because
    it is unknown which is meant. An index that was not requested is dropped.
    """
    listed = reply.get("scores")
    rows = listed if isinstance(listed, list) else []
    found: dict[int, Item] = {}
    spoiled: set[int] = set()
    for row in rows:
        index = row.get("index") if isinstance(row, dict) else None
        if type(index) is not int or index not in asked:
            continue
        if index in found or index in spoiled:
            spoiled.add(index)
            found.pop(index, None)
            continue
        try:
            found[index] = kind.model_validate(row)
        except ValidationError:
            spoiled.add(index)
    return found, len(found) == len(asked) == len(rows)


TRUNCATED = "[truncated]"
QUESTION_CHARS = 20_000
"""The most characters that a judge is shown of a question. Longer text keeps its head and its tail."""
TRAJECTORY_TOKENS, GROUP_TOKENS = 24_576, 196_608
"""Shown of one attempt, and of all attempts of a group together: more than the paper's 18,432 tokens of a response each."""


class _Piece(NamedTuple):
    """A part of the attempt. Parts of a low rank are shortened first: pages, own steps, cited snippets, the answer."""

    stage: Stage
    author: Origin
    text: str
    rank: int
    segment: int
    """Parts of one observation belong together."""


_PAGE, _STEP, _CITED, _ANSWER = range(4)
_SHOWN_SNIPPET = re.compile(rf'<{SNIPPET} id="(?P<id>[^"<>]*)">.*?</{SNIPPET}>', re.DOTALL)


def render_stages(parsed: ParsedTrajectory, *, tokens: int = TRAJECTORY_TOKENS) -> dict[str, Any]:
    """Each stage as a list of {"agent": text} and {"tool_output": text}; None where the stage never happened.

    What is longer than the limit is shortened from the lowest rank up, in equal proportion within a rank, with a note of
    how much was left out. Tokens are estimated.
    """
    pieces = _shorten_to(list(_pieces(parsed)), tokens)
    stages: dict[str, Any] = {}
    for stage in STAGES:
        own = groupby((piece for piece in pieces if piece.stage is stage), key=lambda one: (one.author, one.segment))
        shown = [
            {"agent" if author is Origin.POLICY else "tool_output": "".join(part.text for part in parts)}
            for (author, _), parts in own
        ]
        stages[stage.value] = shown if parsed.happened(stage) else None
        if stages[stage.value] and parsed.breaks_off(stage):
            stages[stage.value].append({"note": TRUNCATED})
    return stages


def _shorten_to(pieces: list[_Piece], tokens: int) -> list[_Piece]:
    """The pieces within the limit: the highest rank gets what it needs first, and the last one to be served a share."""
    left = tokens
    shares = {}
    for rank in (_ANSWER, _CITED, _STEP, _PAGE):
        needed = sum(estimate_tokens(piece.text) for piece in pieces if piece.rank == rank)
        shares[rank] = min(1.0, left / needed) if needed else 1.0
        left = max(0, left - needed)
    return [
        piece._replace(text=shorten_middle(piece.text, int(len(piece.text) * shares[piece.rank]))) for piece in pieces
    ]


def shorten_middle(text: str, limit: int) -> str:
    """The head and tail of a long text, with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail]} [... {len(text) - limit} characters left out ...] {text[len(text) - tail :]}"


def _pieces(parsed: ParsedTrajectory) -> Iterator[_Piece]:
    """The policy's and the tools' text in order. The snippets that the answer cites stand apart within an observation."""
    repeats = find_repeats(parsed)
    offset = 0
    for number, segment in enumerate(parsed.trajectory.segments):
        if segment.origin is Origin.POLICY:
            end = offset + len(segment.text)
            for stage, span in parsed.spans.items():
                own = Span(max(span.start, offset), min(span.end, end))
                text = leave_out(repeats, parsed.policy_text, within=own) if own.end > own.start else ""
                if text.strip():
                    yield _Piece(stage, Origin.POLICY, text, _ANSWER if stage is Stage.ANSWER else _STEP, number)
            offset = end
        elif segment.origin is Origin.TOOL:
            # The stage of the last character before it: the one that made the tool call.
            spans = parsed.spans.items()
            stage = next((stage for stage, span in spans if span.start < offset <= span.end), Stage.RESEARCH)
            text, begin = inert_tool_text(segment), 0
            for found in _SHOWN_SNIPPET.finditer(text):
                if found["id"] in parsed.citations.known:
                    yield _Piece(stage, Origin.TOOL, text[begin : found.start()], _PAGE, number)
                    yield _Piece(stage, Origin.TOOL, found[0], _CITED, number)
                    begin = found.end()
            yield _Piece(stage, Origin.TOOL, text[begin:], _PAGE, number)
