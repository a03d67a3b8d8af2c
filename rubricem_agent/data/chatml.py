"""A training sample as a conversation, as tokens with a loss mask, and as rows for other trainers.

{"id": ..., "messages": [{"role": "system", ...}, {"role": "user", ...}, {"role": "assistant", ...}],
 "spans": [[0, 512], [1840, 2210]], ...}

The assistant's message is the whole trace, or a window of a folded one, with tool output; the spans cover what the
policy wrote and carry the loss. This message never goes through the chat template, because Qwen3's template keeps only
the text after the last thought. TRL and LLaMA-Factory mask by message role, so they get token rows with labels.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

from pydantic import ConfigDict, Field, model_validator

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.chat_template import ChatMessage, opening_messages, split_template
from rubricem_env.domain.base import Frozen, Span, Text
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.inputs import read_lines, validating
from rubricem_env.domain.trajectory import AnswerFormat, Origin, Segment, Trajectory
from rubricem_env.env.view import windows_of
from rubricem_records.files.atomic_files import writing


class ChatTurn(Frozen):
    """One message of a conversation."""

    model_config = ConfigDict(extra="ignore")

    role: Text
    content: Text


class ChatSample(Frozen):
    """A conversation for training. Spans are in order, do not touch and are never empty."""

    id: Text
    messages: tuple[ChatTurn, ChatTurn, ChatTurn]
    spans: tuple[tuple[int, int], ...]
    """[start, end) in characters of the assistant's message."""
    query_key: Text = ""
    answer_format: AnswerFormat = AnswerFormat.LONG
    teacher: Text = ""
    prompt_hash: Text = ""
    """Of the teacher's prompts."""
    ends: Annotated[bool, Field(exclude_if=bool)] = True
    """Whether the trace ends here. A window before a fold goes on in the next sample, so nothing teaches it to stop."""

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

    def with_system(self, system: str) -> "ChatSample":
        """The same sample after another system prompt."""
        _, user, assistant = self.messages
        return self.model_copy(update={"messages": (ChatTurn(role="system", content=system), user, assistant)})

    @property
    def pieces(self) -> Iterator[tuple[str, bool]]:
        """The pieces of the assistant's message in order, each with whether the policy wrote it."""
        text = self.messages[2].content
        done = 0
        for start, end in self.spans:
            if start > done:
                yield text[done:start], False
            yield text[start:end], True
            done = end
        if done < len(text):
            yield text[done:], False


def samples_of(trajectory: Trajectory, *, sample_id: str, system: str, user: str) -> list[ChatSample]:
    """The samples of a normalised trace, one for each of its windows; `user` is the question with its format.

    Each turn is learnt in one sample: what the window begins with is read and not learnt again.
    """
    windows = [window for window in windows_of(trajectory) if window.turns]
    if len(windows) < 2:
        return [sample_of(trajectory, sample_id=sample_id, system=system, user=user)]
    samples = []
    for number, (view, turns) in enumerate(windows, 1):
        before = "".join(part for turn in view.turns for part in (turn.text, turn.observation))
        shown = [segment for turn in turns for segment in (turn.written, turn.read)]
        segments = (Segment(origin=Origin.TOOL, text=before), *shown[:-1])
        window = trajectory.model_copy(update={"segments": segments, "folds": ()})
        sample = sample_of(window, sample_id=f"{sample_id}#{number}", system=system, user=user)
        samples.append(sample.model_copy(update={"ends": number == len(windows)}))
    return samples


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
            ChatTurn(role="system", content=system),
            ChatTurn(role="user", content=user),
            ChatTurn(role="assistant", content=text),
        ),
        spans=tuple((span.start, span.end) for span in spans),
        query_key=trajectory.query_key,
        answer_format=trajectory.answer_format,
    )


def write_samples(path: Path, samples: Iterable[ChatSample]) -> int:
    """Write one sample a line; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        return sum(file.write(f"{sample.model_dump_json()}\n") > 0 for sample in samples)


def read_samples(path: Path) -> list[ChatSample]:
    """The samples of a file; blank lines are skipped.

    Raises:
        FileFormatError: the file cannot be read, holds no sample, or a line is none.
    """
    samples = []
    for where, line in read_lines(path, "a ChatML JSONL file"):
        with validating(f"{where} is not a sample"):
            # Not strict: JSON has lists for tuples and strings for enums.
            samples.append(ChatSample.model_validate_json(line, strict=False))
    if not samples:
        raise FileFormatError(f"{path} holds no sample; write one with `rubricem data teach`.")
    return samples


_PROBE = "\u2063probe\u2063"


class ChatTokenizer(Protocol):
    """What is needed of a transformers tokenizer."""

    @property
    def eos_token_id(self) -> int | None: ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str: ...

    def __call__(self, text: str, *, add_special_tokens: bool, split_special_tokens: bool) -> Any: ...


class TokenSample(NamedTuple):
    """Token ids of a whole conversation."""

    ids: list[int]
    has_loss: list[bool]
    """For each id whether it is to be learnt: the policy's own, and the token that ends its message."""


def encode_sample(sample: ChatSample, tokenizer: ChatTokenizer) -> TokenSample:
    """The ids of a sample. Every piece is encoded apart, so that no token spans two authors.

    In messages and pieces special tokens are plain text, whoever wrote them: only the template writes real ones.

    Raises:
        ConfigError: the chat template drops a message, or ends an answer without the tokenizer's end token.
    """

    def render(messages: Sequence[ChatMessage]) -> str:
        written = [message._asdict() for message in messages]
        return tokenizer.apply_chat_template(written, tokenize=False, add_generation_prompt=True)

    system, user = (message.content.strip() for message in sample.messages[:2])
    before, between, after = (_encode(tokenizer, part, specials=True) for part in split_template(render))
    ids = [*before, *_encode(tokenizer, system, specials=False), *between]
    ids += [*_encode(tokenizer, user, specials=False), *after]
    has_loss = [False] * len(ids)
    for text, is_policy in sample.pieces:
        piece_ids = _encode(tokenizer, text, specials=False)
        ids += piece_ids
        has_loss += [is_policy] * len(piece_ids)
    # What the template puts after an answer, up to and with the end token.
    messages = [*opening_messages(Opening("Rules.", "Question?")), ChatMessage("assistant", _PROBE)]
    probed = [message._asdict() for message in messages]
    rendered = tokenizer.apply_chat_template(probed, tokenize=False, add_generation_prompt=False)
    ending = _encode(tokenizer, rendered.rpartition(_PROBE)[2], specials=True)
    if tokenizer.eos_token_id not in ending:
        raise ConfigError(
            "the chat template ends an answer without the tokenizer's end token; a model trained so would never "
            "stop. Set the tokenizer's eos_token to the template's, such as <|im_end|>."
        )
    ending = ending[: ending.index(tokenizer.eos_token_id) + 1] if sample.ends else []
    return TokenSample(ids + ending, has_loss + [True] * len(ending))


def _encode(tokenizer: ChatTokenizer, text: str, *, specials: bool) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, split_special_tokens=not specials).input_ids)


IGNORED = -100
"""The label of a token without loss, in both trainers."""
ROWS_FILE = "rows.jsonl"
RECIPES = {"trl": "trl_sft.py.txt", "llama_factory": "llama_factory.yaml"}
"""What is laid beside the rows of each trainer."""


def export_rows(
    samples: Sequence[ChatSample], tokenizer: ChatTokenizer, *, folder: Path, trainer: str, max_tokens: int
) -> tuple[int, int]:
    """Write rows.jsonl and the trainer's recipe into the folder; returns how many rows were written and dropped.

    A sample longer than `max_tokens` is dropped: truncated it would lose the answer.

    Raises:
        ConfigError: there is no such trainer, or the folder cannot be written.
    """
    if trainer not in RECIPES:
        raise ConfigError(f"there is no export for {trainer!r}; there is one for {' and '.join(RECIPES)}.")
    name = RECIPES[trainer]
    recipe = (files("rubricem_agent.data") / "recipes" / name).read_text(encoding="utf-8")
    written = 0
    with writing(folder, "Choose another folder with --out."):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ROWS_FILE).open("w", encoding="utf-8") as file:
            for ids, has_loss in (encode_sample(sample, tokenizer) for sample in samples):
                if len(ids) <= max_tokens:
                    labels = [token if learnt else IGNORED for token, learnt in zip(ids, has_loss, strict=True)]
                    row = {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}
                    file.write(json.dumps(row) + "\n")
                    written += 1
        (folder / name.removesuffix(".txt")).write_text(recipe, encoding="utf-8")
    return written, len(samples) - written
