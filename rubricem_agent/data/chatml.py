"""One training sample: a conversation of three messages, and which characters of the answer carry loss.

{"id": ..., "messages": [{"role": "system", ...}, {"role": "user", ...}, {"role": "assistant", ...}],
 "spans": [[0, 512], [1840, 2210]], ...}

The assistant's message is the whole trace, tool output included; the spans cover what the policy wrote.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError, model_validator

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.query import AnswerFormat
from rubricem_env.domain.span import Span
from rubricem_env.domain.trajectory import Origin, Trajectory
from rubricem_env.domain.trajectory_json import first_problem


class Message(Frozen):
    """One turn of the conversation."""

    role: Literal["system", "user", "assistant"]
    content: Text


class Piece(NamedTuple):
    """A stretch of the assistant's message with one author."""

    text: str
    is_policy: bool
    """Whether it carries loss; tool output does not."""


class ChatSample(Frozen):
    """A conversation for training. Spans are in order, do not touch and are never empty."""

    id: Text
    messages: tuple[Message, Message, Message]
    spans: tuple[tuple[int, int], ...]
    """[start, end) in characters of the assistant's message."""
    query_key: Text = ""
    answer_format: AnswerFormat = AnswerFormat.LONG
    teacher: Text = ""
    prompt_hash: Text = ""
    """Of the teacher's prompts."""

    @model_validator(mode="after")
    def _spans_lie_in_the_answer(self) -> "ChatSample":
        roles = [message.role for message in self.messages]
        if roles != ["system", "user", "assistant"]:
            raise ValueError(f"the messages are {', '.join(roles)}; they must be system, user, assistant")
        edges = [0, *(edge for span in self.spans for edge in span), len(self.messages[2].content)]
        if not self.spans or any(after < before for before, after in pairwise(edges)):
            raise ValueError("the loss spans are missing, out of order, or reach beyond the assistant's message")
        if any(start == end for start, end in self.spans):
            raise ValueError("a loss span is empty; leave it out")
        return self

    @property
    def pieces(self) -> Iterator[Piece]:
        """The assistant's message, piece by piece; joined they are the message."""
        text, done = self.messages[2].content, 0
        for start, end in self.spans:
            if start > done:
                yield Piece(text[done:start], is_policy=False)
            yield Piece(text[start:end], is_policy=True)
            done = end
        if done < len(text):
            yield Piece(text[done:], is_policy=False)


def sample_of(trajectory: Trajectory, *, sample_id: str, system: str, user: str) -> ChatSample:
    """The sample of a normalised trace; `user` is the question with its format instruction."""
    text = ""
    spans: list[Span] = []
    for segment in trajectory.segments:
        if segment.origin is Origin.PROMPT:
            continue
        end = len(text) + len(segment.text)
        if segment.origin is Origin.POLICY and segment.text:
            # Two turns of the policy that touch are one stretch of loss.
            joined = spans and spans[-1].end == len(text)
            start = spans.pop().start if joined else len(text)
            spans.append(Span(start, end))
        text += segment.text
    return ChatSample(
        id=sample_id,
        messages=(
            Message(role="system", content=system),
            Message(role="user", content=user),
            Message(role="assistant", content=text),
        ),
        spans=tuple((span.start, span.end) for span in spans),
        query_key=trajectory.query_key,
        answer_format=trajectory.answer_format,
    )


def write_samples(path: Path, samples: Iterable[ChatSample]) -> int:
    """Write one sample a line; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for sample in samples:
            file.write(sample.model_dump_json() + "\n")
            count += 1
    return count


def read_samples(path: Path) -> list[ChatSample]:
    """The samples of a file; blank lines are skipped.

    Raises:
        FileFormatError: the file cannot be read, holds no sample, or a line is none.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {path}: {cause}. Give the path of a ChatML JSONL file.") from cause
    samples = [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1) if line.strip()]
    if not samples:
        raise FileFormatError(f"{path} holds no sample; write one with `rubricem data teach`.")
    return samples


def _parse(line: str, where: str) -> ChatSample:
    try:
        # Not strict: JSON has lists for tuples and strings for enums.
        return ChatSample.model_validate_json(line, strict=False)
    except ValidationError as cause:
        raise FileFormatError(f"{where} is not a sample: {first_problem(cause)}") from cause
