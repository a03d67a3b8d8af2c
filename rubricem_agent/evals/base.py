"""The data of a benchmark and the protocol that a mode fixes.

What the agent may see (`Example`) is kept apart from what only judges and scorers may see (`Gold`). Every number is
reported together with its mode:

official   the benchmark's own scorer
drtulu     DR Tulu's protocol, which the paper says that it shares
strict     as official, but replies are read without quirks and every failure counts as the worst case

A benchmark file that is missing, of another version or malformed raises FileFormatError.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import ConfigDict, JsonValue

from rubricem_agent.data.chatml import ChatTurn as ChatTurn
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError, RubricEMError, UsageError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_records.evaluation_rules import Rules


class Example(Frozen):
    """Everything that the agent is given. It never contains gold answers, rubrics, root urls or answer types."""

    id: Text
    prompt_text: Text
    turns: tuple[ChatTurn, ...] = ()
    """The conversation behind `prompt_text`, where the benchmark has one."""


class Gold(Frozen):
    """Base of what scores an example, usually the row of the file. Other columns of the file are ignored."""

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    id: Text

    def accepted_answers(self) -> tuple[str, ...]:
        """Every answer that counts as right; none where rubrics score the example."""
        return ()

    def lacks(self) -> str:
        """What scoring needs and the files do not have, such as "criteria"; empty where nothing is missing."""
        return ""


@dataclass(frozen=True)
class Dataset:
    """Examples in file order, their gold by id, and the path and hash of the file of both."""

    examples: tuple[Example, ...]
    gold: Mapping[str, Gold]
    path: Path
    sha256: str
    formats: Mapping[str, AnswerFormat] = field(default_factory=dict)
    """Answer formats by example id, where the examples of a benchmark differ in it."""


class DataPaths(NamedTuple):
    """The files of a benchmark. Only DeepResearchBench needs more than one."""

    path: Path | None = None
    criteria: Path | None = None
    references: Path | None = None


def required(path: Path | None, what: str, *, option: str = "--data FILE") -> Path:
    """The path of a file that must be given. Raises UsageError where the path is missing."""
    if path is None:
        raise UsageError(f"{what} needs a file that was not named. Give it with {option}.")
    return path


def official_rules(judge: str, **changes: object) -> Rules:
    """The rules of the official mode; `changes` are fields that differ from the defaults."""
    return Rules.model_validate({"mode": "official", "judge": judge, **changes})


def drtulu_rules(official: Rules, **changes: object) -> Rules:
    """The official rules as DR Tulu changes them for every benchmark; `changes` are those of one benchmark."""
    shared = {
        "mode": "drtulu",
        "temperature": 0.0,
        "extraction": "predecessor",
        "citations": "kept",
        "sampling": "drtulu",
        "clips_mean": False,
    }
    return official.model_copy(update={**shared, **changes})


SHORT_GUIDANCE = "Give the answer alone, as short as it can be, in \\boxed{}."

GPT = "gpt-4.1-2025-04-14"

GEMINI_PRO = "gemini-2.5-pro-preview-06-05"


class ScoringError(RubricEMError):
    """The official scorer raises on this input, so that no number may be made up for it.

    `official` is the name of the exception type that the official code raises; `judge_calls` is the number of replies
    requested by then, where the scorer counts them.
    """

    def __init__(self, official: str, reason: str, *, judge_calls: int | None = None) -> None:
        super().__init__(f"{reason} (the official scorer raises {official} here)")
        self.official = official
        self.reason = reason
        self.judge_calls = judge_calls


def official_field(record: object, name: str) -> JsonValue:
    """A field of a recorded object, as the official code reads it: raises ScoringError where that code stops."""
    if not isinstance(record, Mapping):
        raise ScoringError("TypeError", f"{record!r} has no field {name}")
    if name not in record:
        raise ScoringError("KeyError", f"the record has no field {name}")
    value: JsonValue = record[name]
    return value


def shown(value: object, *, limit: int = 80) -> str:
    """A value in a message: a list by its items, a long text by its beginning."""
    text = ", ".join(map(str, value)) if isinstance(value, tuple) else "not there" if value is None else str(value)
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


API_ERROR = "<<API_ERROR>>"
"""Recorded in place of a reply where the request itself failed."""

ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class Unparsed:
    """A reply from which no verdict could be read, and why. Never a zero."""

    reason: str


class Replies:
    """Returns recorded replies one by one and counts the calls; after the last reply it repeats the last.

    A recording contains a refusing judge once; an official scorer that asks three times gets that reply three times.
    """

    def __init__(self, recorded: Sequence[str]) -> None:
        self._recorded = tuple(recorded)
        self.calls = 0

    def ask(self) -> str | None:
        """The next reply, or None where the request failed. Every call counts, failed ones too."""
        index = min(self.calls, len(self._recorded) - 1)
        self.calls += 1
        reply = self._recorded[index] if self._recorded else API_ERROR
        return None if reply == API_ERROR else reply

    def first_parsed(
        self, parse: Callable[[str], ValueT | Unparsed], *, tries: int, ends_at_failure: bool = False
    ) -> ValueT | Unparsed:
        """The first reply that can be parsed, out of `tries`; otherwise why the last one could not."""
        parsed: ValueT | Unparsed = Unparsed("not asked")
        for _ in range(tries):
            reply = self.ask()
            parsed = Unparsed("the request failed") if reply is None else parse(reply)
            if not isinstance(parsed, Unparsed) or (reply is None and ends_at_failure):
                break
        return parsed


def judges_of(replies: Sequence[Sequence[str]], items: Sequence[object]) -> list[Replies]:
    """The recorded judge of each rubric item. Raises FileFormatError where there is not one list of replies for each."""
    if len(replies) != len(items):
        raise FileFormatError(f"judge_replies: {len(replies)} lists of replies for {len(items)} rubric items")
    return list(map(Replies, replies))


def parse_json(text: str) -> JsonValue | Unparsed:
    """The whole text as JSON. NaN and Infinity are accepted and the last of two equal keys wins, as in Python's json."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unparsed(f"not JSON: {error}")
    return value


def drop_fence_marks(text: str) -> str:
    """The text without any code fence marks, labelled json or bare."""
    return text.replace("```json", "").replace("```", "")


def as_number(value: JsonValue) -> float | None:
    """The value as Python's `float` reads it; None where it cannot."""
    if value is None or isinstance(value, dict | list):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


Scorer = Callable[..., object]
"""Scores one kind of recorded case: its parameters are the fields of the case's input that it reads.

Returns JSON-like values. Raises ScoringError where the official scorer raises.
"""

Unit = Mapping[str, Scorer]
"""The scorers of one kind of recorded case: the one under "official", and other published scorers by name."""
