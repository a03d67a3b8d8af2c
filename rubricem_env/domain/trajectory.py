"""Queries, tool calls and their results, and trajectories with their versioned JSON format.

A trajectory records who wrote which text, in order. The JSON format is the same for the viewer, the judge, the adapters
and the data sets: version 1 is written; version 0, a bare {"question", "segments": [{"origin", "text"}]}, is read too.
"""

import hashlib
import json
import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator, model_validator

from rubricem_env.domain.base import Count, Frozen, PositiveCount, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.scaffold import Scaffold, same_scaffold
from rubricem_env.domain.stage_set import DEEP_RESEARCH


class AnswerFormat(StrEnum):
    """The requested form of the answer (paper, section B.1)."""

    EXACT = "exact"
    """One boxed value."""
    SHORT = "short"
    """One paragraph with citations."""
    LONG = "long"
    """A structured report with citations."""


def query_key(question: str) -> str:
    """SHA-256 of the question, NFC and stripped, in UTF-8: no format suffix, no reference block.

    The rubric buffer, the rubric bank and every log identify a question by this key.
    """
    return hashlib.sha256(unicodedata.normalize("NFC", question).strip().encode()).hexdigest()


class Query(Frozen):
    """One question with the form of its answer and the rubrics of its data set."""

    question: Text
    answer_format: AnswerFormat = AnswerFormat.LONG
    rubrics: tuple[Rubric, ...] = ()
    """Persistent rubrics: Answer stage only, never retired."""
    source: Text = ""
    """Where the question comes from, for reports."""

    @field_validator("question")
    @classmethod
    def _asks_something(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("a query's question is empty; it needs at least one visible character")
        return question

    @cached_property
    def key(self) -> str:
        return query_key(self.question)


class ToolStatus(StrEnum):
    """How a call ended. Only the last four are errors: finding nothing is an answer."""

    OK = "ok"
    EMPTY = "empty"
    ERROR = "error"
    BLOCKED = "blocked"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"

    @property
    def is_error(self) -> bool:
        return self not in (ToolStatus.OK, ToolStatus.EMPTY)


class ToolCall(Frozen):
    """A tool by its canonical name, the query, and the parameters as written."""

    name: Text
    query: Text
    parameters: tuple[tuple[Text, Text], ...] = ()
    """Sorted by name, so that equal calls are equal values."""
    written_name: Text = ""
    """The name as the policy wrote it, if it differs from the canonical name."""

    @property
    def identity(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Equal for calls that ask the same; case and spacing of the query do not count."""
        return (self.name, " ".join(self.query.casefold().split()), self.parameters)


MAX_TITLE = 200
MAX_URL = 2_000
"""Characters of a snippet's title and address that are shown and recorded."""


class Snippet(Frozen):
    """One piece of evidence as a backend returns it, before it is numbered and neutralized."""

    text: Text
    title: Text = ""
    url: Text = ""


class ToolResult(Frozen):
    """The result of a call: a status, and perhaps a summary and snippets."""

    status: ToolStatus
    summary: Text = ""
    snippets: tuple[Snippet, ...] = ()
    message: Text = ""
    """One sentence for the policy if the status is not ok."""
    executed: ToolCall | None = None
    """The call as executed, if it had to be repaired, such as for a misspelt name."""

    @classmethod
    def found(cls, snippets: Iterable[Snippet], summary: str = "") -> "ToolResult":
        """What a search found; empty where that is nothing."""
        kept = tuple(snippets)
        return cls(status=ToolStatus.OK if kept or summary else ToolStatus.EMPTY, summary=summary, snippets=kept)


TRAJECTORY_VERSION = 1


class Origin(StrEnum):
    """Who wrote a segment. Structure is read from the policy's text alone."""

    PROMPT = "prompt"
    POLICY = "policy"
    TOOL = "tool"


def source_lines(snippet: Snippet) -> tuple[str, str]:
    """A snippet's title and address, on one line each and bounded."""
    return " ".join(snippet.title[:MAX_TITLE].split()), " ".join(snippet.url[:MAX_URL].split())


class Source(Frozen):
    """Where a snippet comes from, as its tool said; a field is empty where it did not say.

    Both are a stranger's words. They are kept apart from the text that the policy reads, so that nobody has to find
    them in it again.
    """

    title: Text = ""
    url: Text = ""

    @classmethod
    def of(cls, snippet: Snippet) -> "Source":
        """The snippet's own, on one line each and bounded."""
        title, url = source_lines(snippet)
        return cls(title=title, url=url)


class Observation(Frozen):
    """The call that a tool segment answers, its status, and the ids and sources of the snippets that it showed."""

    status: ToolStatus | None = None
    """The status of the call. It is None for a notice of the environment, where nothing was executed."""
    call: ToolCall | None = None
    snippet_ids: tuple[Text, ...] = ()
    sources: tuple[Source, ...] = ()
    """The source of each snippet, in the order of the ids; a snippet beyond their number has none."""


class Segment(Frozen):
    """A piece of text with its author."""

    origin: Origin
    text: Text
    cut: Text = ""
    """The text after the action, which was removed from a policy segment. It is only a record."""
    thought: Text = ""
    """The reasoning that the server sent apart from a policy segment's text. It is only a record."""
    observation: Observation | None = None
    """What the episode knows of a tool segment that it made. It is absent in files from elsewhere."""


class Ending(StrEnum):
    """Why an episode is over.

    Answered is termination; all others are truncation: the limits ended it, not the policy.
    """

    ANSWERED = "answered"
    CALL_BUDGET = "call_budget"
    TURN_BUDGET = "turn_budget"
    TOKEN_BUDGET = "token_budget"
    STALLED = "stalled"
    """Turn after turn without an action."""
    ABANDONED = "abandoned"
    """The driver stopped it: an infrastructure failure, a time-out, a shutdown."""


class Fold(Frozen):
    """Where the policy's view of an episode was folded, and what the view has left of the turns before.

    With the record it gives the view byte for byte: neither the settings nor a tokenizer are needed.
    """

    turn: PositiveCount
    """The number of turns before it, with what was read after each."""
    left_out: Count = 0
    """The first turns, of which the view has only the number."""
    weighed: Count = 0
    """The turns after those, of which it has what they weighed, and the call and its result no longer."""
    untitled: Count = 0
    """The turns after those, whose snippets stand there without titles."""
    whole: Count = 0
    """The last turns, which stand there as they were. Those between have titles."""
    clip: Count = 0
    """The most characters of a block of a folded turn; 0 where none is cut."""

    @model_validator(mode="after")
    def _fits_its_turns(self) -> "Fold":
        named = self.left_out + self.weighed + self.untitled + self.whole
        if named > self.turn:
            raise ValueError(f"a fold after turn {self.turn} names {named} turns; they are at most those before it")
        return self


class Trajectory(Frozen):
    """One attempt at one question, from prompt to ending."""

    version: Annotated[int, Field(ge=TRAJECTORY_VERSION, le=TRAJECTORY_VERSION)] = TRAJECTORY_VERSION
    question: Text
    answer_format: AnswerFormat = AnswerFormat.LONG
    scaffold: Annotated[
        Scaffold, AfterValidator(same_scaffold), Field(exclude_if=lambda scaffold: scaffold is DEEP_RESEARCH.scaffold)
    ] = DEEP_RESEARCH.scaffold
    """The stages and tags that it was written in. A record leaves it out where they are those of deep research."""
    segments: tuple[Segment, ...]
    ending: Ending | None = None
    """The ending is None while the episode runs, or if a file does not say."""
    seed: int | None = None
    folds: Annotated[tuple[Fold, ...], Field(exclude_if=lambda folds: not folds)] = ()
    """Where the policy's view was folded, in order. A record leaves it out where it never was."""

    @model_validator(mode="after")
    def _folds_its_turns(self) -> "Trajectory":
        if not self.folds:
            return self
        turns = [fold.turn for fold in self.folds]
        written = sum(segment.origin is Origin.POLICY for segment in self.segments)
        if turns[-1] > written or any(after <= before for before, after in pairwise(turns)):
            raise ValueError(f"the folds come after turns {turns}; the record has {written} turns, and folds rise")
        return self

    @property
    def query_key(self) -> str:
        return query_key(self.question)

    @property
    def policy_text(self) -> str:
        """The policy's segments, joined: the text that stage spans count in."""
        return "".join(segment.text for segment in self.segments if segment.origin is Origin.POLICY)


def dump_trajectory(trajectory: Trajectory) -> str:
    """One line of JSON; equal trajectories give equal bytes."""
    content = trajectory.model_dump(mode="json")
    for segment in content["segments"]:
        if not segment["thought"]:
            del segment["thought"]
        if segment["observation"] and not segment["observation"]["sources"]:
            del segment["observation"]["sources"]
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def load_trajectory(text: str, where: str = "trajectory") -> Trajectory:
    """Read any version up to this one; `where` names the file or line in the message.

    Raises:
        FileFormatError: not JSON, a newer version, or a field that breaks the format.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise FileFormatError(f"{where} is not JSON: {cause}. A trajectory file holds one JSON object.") from cause
    if not isinstance(fields, dict):
        kind = type(fields).__name__
        raise FileFormatError(f"{where} holds a JSON {kind}; a trajectory is an object with 'question' and 'segments'.")
    version = fields.get("version", 0)
    if type(version) is not int or version < 0:
        raise FileFormatError(f"{where} has the version {version!r}; a version is a whole number from 0 up.")
    if version > TRAJECTORY_VERSION:
        raise FileFormatError(
            f"{where} is a trajectory of version {version}; this release reads up to {TRAJECTORY_VERSION}. "
            "Upgrade rubricem to read it."
        )
    with validating(f"{where} is not a trajectory", "`rubricem ask --out FILE` writes one."):
        # Not strict: JSON has lists for tuples and strings for enums. A trajectory contains no score.
        return Trajectory.model_validate({**fields, "version": TRAJECTORY_VERSION}, strict=False)
