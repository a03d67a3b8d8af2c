"""Records tool calls in a file, and replays them.

The record is a JSONL file: a first line with the format, then one call and its result a line. A replay gives the same
results for the same calls, without network, keys or clock.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError
from rubricem_env.domain.inputs import read_text, validating
from rubricem_env.domain.trajectory import ToolCall, ToolResult
from rubricem_env.llm.keys import Redactor
from rubricem_env.tools.base import Toolbox, redacted

_SHOWN = 80


class _Head(Frozen):
    """The first line of a record."""

    format: Literal["rubricem-tool-calls"]
    version: Literal[1]
    tools: tuple[str, ...]


class RecordedCall(Frozen):
    """One call as the policy made it, and its result, without secrets."""

    call: ToolCall
    result: ToolResult


def read_record(path: Path) -> tuple[tuple[str, ...], tuple[RecordedCall, ...]]:
    """The names of the tools, and the calls. A last line that was truncated by a crash is ignored.

    Raises:
        FileFormatError: the file is missing or malformed.
    """
    text = read_text(path, "a tool record; `record` makes one")
    # A text after the last line break was being written when the process died.
    complete = text.split("\n")[:-1]
    if not complete:
        raise FileFormatError(f"the tool record {path} is empty; its first line names its format.")
    with validating(f"{path}, line 1 is not the head of a tool record of version 1"):
        names = _Head.model_validate_json(complete[0]).tools
    calls = []
    for number, line in enumerate(complete[1:], 2):
        with validating(f"{path}, line {number} is not a recorded call"):
            calls.append(RecordedCall.model_validate_json(line))
    return names, tuple(calls)


class RecordingToolbox:
    """Appends each call and its result to a file, in order of completion, without known secrets.

    The inner toolbox gets the call without secrets too, so that a replay of the run finds it.
    """

    def __init__(self, toolbox: Toolbox, path: Path, redactor: Redactor = str) -> None:
        self.names = toolbox.names
        self._toolbox = toolbox
        self._path = path
        self._redactor = redactor
        self._is_begun = False

    @classmethod
    def onto(cls, toolbox: Toolbox, path: Path, redactor: Redactor = str) -> Self:
        """A recording toolbox whose file is writable. An older record is kept until the first call is recorded.

        Raises:
            ConfigError: the file cannot be written.
        """
        recording = cls(toolbox, path, redactor)
        with _writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                path.open("a").close()
            else:
                recording._begin()
        return recording

    async def call(self, call: ToolCall) -> ToolResult:
        """Call, then write; a call that is cancelled leaves no line.

        Raises:
            ConfigError: the file cannot be written.
        """
        call = redacted(call, self._redactor)
        result = redacted(await self._toolbox.call(call), self._redactor)
        with _writing(self._path):
            if not self._is_begun:
                self._begin()
            with self._path.open("a", encoding="utf-8") as record:
                record.write(RecordedCall(call=call, result=result).model_dump_json() + "\n")
        return result

    def _begin(self) -> None:
        """Start a new record; an older one of the same name is replaced."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        head = _Head(format="rubricem-tool-calls", version=1, tools=self.names)
        self._path.write_text(head.model_dump_json() + "\n", encoding="utf-8")
        self._is_begun = True


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise ConfigError(
            f"cannot write the tool record {path}: {cause.strerror}. Choose another file for `record` in the settings "
            "of the tools, or make room."
        ) from cause


class ReplayToolbox:
    """Answers the Nth of several equal calls with the Nth recorded result. Calls are equal character by character."""

    def __init__(self, path: Path, redactor: Redactor = str) -> None:
        """Reads the record at once. Calls are compared without known secrets, as they were recorded.

        Raises:
            FileFormatError: it is missing or malformed.
        """
        self.names, calls = read_record(path)
        self._path = path
        self._redactor = redactor
        self._results: dict[ToolCall, list[ToolResult]] = {}
        self._used: Counter[ToolCall] = Counter()
        for entry in calls:
            self._results.setdefault(entry.call, []).append(entry.result)

    async def call(self, call: ToolCall) -> ToolResult:
        """The recorded result.

        Raises:
            UsageError: the record has no such call, or has it fewer times.
        """
        call = redacted(call, self._redactor)
        results = self._results.get(call, [])
        index = self._used[call]
        times = len(results)
        if index >= times:
            query = call.query if len(call.query) <= _SHOWN else call.query[:_SHOWN] + "\u2026"
            recorded = f"{times} time{'s' if times > 1 else ''} and not more" if times else "not at all"
            raise UsageError(
                f"{self._path} has the call {call.name!r} with the query {query!r} {recorded}; a replay can only "
                "repeat recorded calls. Replay with the recorded policy and seed, or record the run again."
            )
        self._used[call] += 1
        return redacted(results[index], self._redactor)
