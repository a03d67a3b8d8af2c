"""The record of tool calls, a JSONL file: a first line with the format, then one call and its result a line.

A toolbox that writes down every call and what came back.

A toolbox that answers from a record: the same calls give the same results, without network, key or clock.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple, Self

from pydantic import Field, ValidationError

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError
from rubricem_env.domain.trajectory import ToolCall, ToolResult, first_problem
from rubricem_env.tools.base import Toolbox

RECORD_VERSION = 1


class RecordHead(Frozen):
    """What the file is, and which tools it was made with."""

    format: Annotated[Text, Field(pattern="^rubricem-tool-calls$")] = "rubricem-tool-calls"
    version: Annotated[int, Field(ge=RECORD_VERSION, le=RECORD_VERSION)] = RECORD_VERSION
    tools: tuple[Text, ...]


class RecordedCall(Frozen):
    """One call as the policy made it, and what came back. No keys, no headers: neither ever gets so far."""

    call: ToolCall
    result: ToolResult


class CallRecord(NamedTuple):
    """A record that was read."""

    head: RecordHead
    calls: tuple[RecordedCall, ...]


def write_line(entry: RecordHead | RecordedCall) -> str:
    """One line; equal entries give equal bytes."""
    return json.dumps(entry.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":")) + "\n"


def read_record(path: Path) -> CallRecord:
    """The whole record.

    Raises:
        FileFormatError: the file is missing or malformed. A last line that was cut off by a crash is left out.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read the tool record {path}: {cause}. Make one with `record`.") from cause
    lines = text.split("\n")
    # What follows the last line break was being written when the process died.
    complete = lines[:-1]
    if not complete:
        raise FileFormatError(f"the tool record {path} is empty; its first line names its format.")
    head = _read_head(complete[0], f"{path}, line 1")
    calls = tuple(_read_call(line, f"{path}, line {number}") for number, line in enumerate(complete[1:], 2))
    return CallRecord(head, calls)


def _read_head(line: str, where: str) -> RecordHead:
    try:
        return RecordHead.model_validate_json(line)
    except ValidationError as cause:
        raise FileFormatError(f"{where} is not the head of a tool record: {first_problem(cause)}") from cause


def _read_call(line: str, where: str) -> RecordedCall:
    try:
        return RecordedCall.model_validate_json(line)
    except ValidationError as cause:
        raise FileFormatError(f"{where} is not a recorded call: {first_problem(cause)}") from cause


class RecordingToolbox:
    """Passes calls through, and appends each with its result to a file, whole lines only, in order of completion."""

    def __init__(self, toolbox: Toolbox, path: Path) -> None:
        self._toolbox = toolbox
        self._path = path
        self._is_begun = False

    @classmethod
    def onto(cls, toolbox: Toolbox, path: Path) -> Self:
        """One whose file is tried before a call is spent; an older record stays until there is something to replace it.

        Raises:
            ConfigError: the file cannot be written.
        """
        recording = cls(toolbox, path)
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                path.open("a").close()
            else:
                recording._begin()
        return recording

    @property
    def names(self) -> tuple[str, ...]:
        return self._toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        """Call, then write; a call that is cancelled leaves no line.

        Raises:
            ConfigError: the file cannot be written.
        """
        result = await self._toolbox.call(call)
        with _writing(self._path):
            if not self._is_begun:
                self._begin()
            self._append(write_line(RecordedCall(call=call, result=result)))
        return result

    def _begin(self) -> None:
        """A record begins anew: an older one of the same name is replaced."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(write_line(RecordHead(tools=self.names)), encoding="utf-8")
        self._is_begun = True

    def _append(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as record:
            record.write(line)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise ConfigError(
            f"cannot write the tool record {path}: {cause.strerror}. Choose another file for `record` in the settings "
            "of the tools, or make room."
        ) from cause


_SHOWN = 80


class NotRecordedError(UsageError):
    """A replayed run asks for what the recorded one did not. Raised, because going on would be another run."""


class ReplayToolbox:
    """Answers the n-th call of its kind with the n-th recorded result; equal means equal in every character."""

    def __init__(self, record: CallRecord, *, where: str = "the record") -> None:
        self._names = record.head.tools
        self._where = where
        self._results: dict[ToolCall, list[ToolResult]] = {}
        self._asked: Counter[ToolCall] = Counter()
        for entry in record.calls:
            self._results.setdefault(entry.call, []).append(entry.result)

    @classmethod
    def from_file(cls, path: Path) -> "ReplayToolbox":
        """Read the record at once.

        Raises:
            FileFormatError: it is missing or malformed.
        """
        return cls(read_record(path), where=str(path))

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    async def call(self, call: ToolCall) -> ToolResult:
        """The recorded result.

        Raises:
            NotRecordedError: the record has no such call, or has it fewer times.
        """
        results = self._results.get(call, [])
        place = self._asked[call]
        if place >= len(results):
            raise NotRecordedError(self._sentence(call, len(results)))
        self._asked[call] += 1
        return results[place]

    def _sentence(self, call: ToolCall, times: int) -> str:
        query = call.query if len(call.query) <= _SHOWN else call.query[:_SHOWN] + "\u2026"
        recorded = f"{times} time{'s' if times > 1 else ''} and not more" if times else "not at all"
        return (
            f"{self._where} holds the call {call.name!r} with the query {query!r} {recorded}; a replay makes the "
            "recorded calls alone. Replay with the recorded policy and seed, or record the run again."
        )
