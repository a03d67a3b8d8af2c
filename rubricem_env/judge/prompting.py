"""The judge's prompts: files beside the code, each known by the hash that goes with every result it makes.

Where a policy repeats the bank's reference block: the judge is told that it does, and not what the block says.

The block stands in the prompt, which no judge is shown. Of the policy's text only long runs of the block's own words are
left out, and only after a tag of its name, closed or not. So nothing that a policy writes hides anything else, and a
lesson that it makes its own is judged with its plan.

The fence around what is judged: content as JSON strings between lines that the content cannot contain.

Text that speaks to the judge instead of to the reader. Counted and shown; it never changes a score by itself.

The shapes of a judge's replies: told to the server as a schema, then checked item by item with nothing believed.

What a judge sees of a trajectory: its stages as JSON, tool text shortened, the bank's reference block left out.

The prompt segment is never shown, so a rubric cannot leak from the bank into the judge. Stage text is cut where
`scaffold.boundaries` cuts it for the tokens.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from itertools import zip_longest
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem_env.domain.base import STAGES, Frozen, Span, Stage
from rubricem_env.domain.judgement import Mark
from rubricem_env.domain.trajectory import Origin
from rubricem_env.scaffold.grammar import RESERVED
from rubricem_env.scaffold.reading import Reading
from rubricem_env.scaffold.untrusted import ShownText, neutralize


class JudgePrompt(NamedTuple):
    """A prompt file's text and the start of its SHA-256."""

    text: str
    hash: str


def read_prompt(name: str) -> JudgePrompt:
    """One of `propose`, `score`, `repair`, `reflect`."""
    text = resources.files("rubricem_env.judge").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    return JudgePrompt(text, hashlib.sha256(text.encode()).hexdigest()[:16])


REPEATED = "[reference block repeated]"
_BLOCK = "reference_examples"
_NAMES = "|".join(sorted(RESERVED, key=len, reverse=True))
_TAG = re.compile(rf"<\s*+(/?)\s*+({_NAMES})(?![\w-])[^<>]*+>", re.IGNORECASE | re.ASCII)


def find_repeats(reading: Reading) -> tuple[Span, ...]:
    """The parts of the policy's text that repeat the block of the prompt, in order."""
    segments = reading.trajectory.segments
    prompt = "".join(segment.text for segment in segments if segment.origin is Origin.PROMPT)
    lent = ShownText(span.of(prompt) for span in _after_openings(prompt))
    written = reading.policy_text
    return tuple(
        Span(span.start + found.start, span.start + found.end)
        for span in _after_openings(written)
        for found in lent.find_copies(span.of(written))
    )


def leave_out(repeats: tuple[Span, ...], text: str, *, within: Span) -> str:
    """A part of the text, with each repeat in it replaced by a note."""
    parts = []
    start = within.start
    for span in repeats:
        if span.start < within.end and within.start < span.end:
            parts += [text[start : max(start, span.start)], REPEATED]
            start = min(span.end, within.end)
    return "".join((*parts, text[start : within.end]))


def _after_openings(text: str) -> Iterator[Span]:
    """What follows each opening tag of the block, up to the next tag of ours."""
    tags = list(_TAG.finditer(text))
    for tag, following in zip_longest(tags, tags[1:]):
        if not tag[1] and tag[2].lower() == _BLOCK:
            yield Span(tag.end(), following.start() if following else len(text))


NONCE_LENGTH = 16
_WIDE_BREAK = re.compile("[\x85\u2028\u2029]")
_DELIMITED_BLOCK = re.compile(
    r"^<<<BEGIN (?P<label>[A-Z]+) (?P<nonce>[0-9a-f]{16})>>>\n(?P<body>.*?)\n<<<END (?P=label) (?P=nonce)>>>$",
    re.M | re.S,
)


class Fence(NamedTuple):
    """Delimiters of one prompt."""

    nonce: str

    @classmethod
    def around(cls, content: object, seed: int) -> "Fence":
        """A fence whose nonce depends on all of the content, so that no part of it can know or hold the nonce."""
        body = _dump(content)
        attempt = 0
        while (nonce := _digest(f"{seed}\0{attempt}\0{body}")) in body:
            attempt += 1
        return cls(nonce)

    def block(self, label: str, content: object) -> str:
        """One labelled block. JSON escapes line breaks, so no line of the content can look like its end."""
        return f"<<<BEGIN {label} {self.nonce}>>>\n{_dump(content)}\n<<<END {label} {self.nonce}>>>"


def read_blocks(prompt: str) -> dict[str, Any]:
    """The blocks of a prompt by label: how a scripted judge reads what a model is shown."""
    return {found["label"]: json.loads(found["body"]) for found in _DELIMITED_BLOCK.finditer(prompt)}


def _dump(content: object) -> str:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    # JSON escapes the line breaks below U+0020; these three are line breaks to some readers and stand as they are.
    return text if text.isascii() else _WIDE_BREAK.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:NONCE_LENGTH]


# Narrow on purpose: "the interest rate was 2 %" and "the top score of the match" are ordinary sentences.
_ASKS = (
    r"\b(?:score|rate|grade|mark)\s+(?:this|it|me|my|each|every|everything|all)\b[^.\n]{0,40}"
    r"\b(?:2|full|maximum|highest|top)\b"
    r"|\bscore\s+(?:of\s+)?2\s+(?:on|for|in)\s+(?:every|all|each)"
    r"|\b(?:give|award|assign|deserves?)\b[^.\n]{0,30}\b(?:full|maximum|highest|top)\s+(?:marks?|scores?|points?|rating)\b"
)
_BAITS = (
    ("asks for a score", re.compile(_ASKS, re.I)),
    (
        "speaks to the judge",
        re.compile(r"\b(?:dear|note to(?: the)?|attention|hey)\s+(?:judge|grader|evaluator|scorer)\b", re.I),
    ),
    (
        "gives orders",
        re.compile(
            r"\b(?:ignore|disregard|forget)\s+(?:all|any|the|your|previous|prior)\b[^.\n]{0,40}\b(?:instructions?|rubrics?|rules?)\b",
            re.I,
        ),
    ),
    ("plays the fence", re.compile(r"<<<\s*(?:BEGIN|END)\b", re.I)),
    ("plays the reply", re.compile(r"[\"']scores?[\"']\s*:\s*(?:\[|[0-9])", re.I)),
)


def find_bait(text: str) -> tuple[str, ...]:
    """The kinds of bait in a text, in a fixed order."""
    return tuple(kind for kind, pattern in _BAITS if pattern.search(text))


Unit = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]


class _Wire(BaseModel):
    """Every field required, none unknown: what servers with strict schemas ask for."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class WireRubric(_Wire):
    title: str
    description: str
    weight: int


class WireStage(_Wire):
    positive_rubrics: list[WireRubric]
    negative_rubrics: list[WireRubric]


class WireProposal(_Wire):
    stage_1: WireStage
    stage_2: WireStage
    stage_3: WireStage
    stage_4: WireStage


class WireScore(_Wire):
    index: int
    justification: str
    score: Mark


class WireScores(_Wire):
    scores: list[WireScore]


class WireReflectionScore(_Wire):
    index: int
    justification: str
    diagnostic_accuracy: Unit
    specificity: Unit
    scope_and_balance: Unit


class WireReflectionScores(_Wire):
    scores: list[WireReflectionScore]


Item = TypeVar("Item", WireScore, WireReflectionScore)


def read_entries(
    reply: Mapping[str, object], kind: type[Item], *, asked: Collection[int]
) -> tuple[dict[int, Item], bool]:
    """The entries that can be used, by index, and whether they are exactly the ones asked for.

    An entry with a mark that is no whole number (1.0, true, "2", NaN) counts as not given. An index given twice
    counts as not given at all: nothing says which of the two is meant. An index that was not asked for is dropped.
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
_CHAT_SPECIAL = re.compile(r"<(\\*)\|")
Limit = Annotated[int, Field(ge=100)]


class RenderBudget(Frozen):
    """The most characters that a judge is shown of each part; what is longer keeps its head and its tail."""

    tool_chars: Limit = 1_500
    """Of one observation."""
    stage_chars: Limit = 40_000
    """Of one stage, tool text included."""
    question_chars: Limit = 20_000


SCORING_BUDGET = RenderBudget()
CONTRAST_BUDGET = RenderBudget(tool_chars=600, stage_chars=12_000)
"""Smaller, because a whole group stands in one prompt."""


class _Piece(NamedTuple):
    stage: Stage
    by: Origin
    text: str


def render_stages(reading: Reading, budget: RenderBudget) -> dict[str, Any]:
    """Each stage as a list of {"agent": text} and {"tool_output": text}; None where it never happened."""
    pieces = list(_pieces(reading, budget))
    stages: dict[str, Any] = {}
    for stage in STAGES:
        own = [piece for piece in pieces if piece.stage is stage]
        stages[stage.value] = _fit(own, budget.stage_chars) if reading.happened(stage) else None
        if stages[stage.value] and reading.breaks_off(stage):
            stages[stage.value].append({"note": TRUNCATED})
    return stages


def shorten_middle(text: str, limit: int) -> str:
    """Head and tail of a text, with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]} [... {len(text) - limit} characters left out ...] {text[len(text) - tail :]}"


def _pieces(reading: Reading, budget: RenderBudget) -> Iterator[_Piece]:
    """Policy and tool text in order, each with the stage that it belongs to."""
    repeats = find_repeats(reading)
    offset = 0
    for segment in reading.trajectory.segments:
        if segment.origin is Origin.POLICY:
            end = offset + len(segment.text)
            for stage in STAGES:
                yield from _policy_pieces(reading, stage, within=Span(offset, end), repeats=repeats)
            offset = end
        elif segment.origin is Origin.TOOL:
            # Our own observations are defused already; those of other people's files may not be.
            text = segment.text if segment.observation is not None else neutralize(segment.text)
            yield _Piece(_stage_before(reading, offset), Origin.TOOL, shorten_middle(text, budget.tool_chars))


def _policy_pieces(reading: Reading, stage: Stage, *, within: Span, repeats: tuple[Span, ...]) -> Iterator[_Piece]:
    for span in reading.spans.of(stage):
        own = Span(max(span.start, within.start), min(span.end, within.end))
        text = leave_out(repeats, reading.policy_text, within=own) if own.end > own.start else ""
        if text.strip():
            yield _Piece(stage, Origin.POLICY, _CHAT_SPECIAL.sub(r"<\\\1|", text))


def _stage_before(reading: Reading, offset: int) -> Stage:
    """The stage of the last character that the policy wrote before a tool answered: the one that made the call."""
    return next(
        (stage for stage in STAGES for span in reading.spans.of(stage) if span.start < offset <= span.end),
        Stage.RESEARCH,
    )


def _fit(pieces: list[_Piece], limit: int) -> list[dict[str, str]]:
    """The pieces within the limit: tool text gives way first, then the agent's own, in equal measure."""
    own = sum(len(piece.text) for piece in pieces if piece.by is Origin.POLICY)
    foreign = sum(len(piece.text) for piece in pieces if piece.by is Origin.TOOL)
    tool_share = 1.0 if own + foreign <= limit else max(0.0, (limit - own) / max(1, foreign))
    own_share = min(1.0, limit / max(1, own))
    rendered = []
    for piece in pieces:
        name, share = ("agent", own_share) if piece.by is Origin.POLICY else ("tool_output", tool_share)
        rendered.append({name: shorten_middle(piece.text, int(len(piece.text) * share))})
    return rendered
