"""The record of tool calls, a JSONL file: a first line with the format, then one call and its result a line."""

import json
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, ValidationError

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.domain.trajectory_json import first_problem

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
