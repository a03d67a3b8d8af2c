"""The journal of a generation run: every turn and every tool result, a line each, so that nothing is paid for twice.

A line is on its way to the disk before the next step is taken: a killed run goes on from its journal. The line that
a kill has cut short is dropped; any other broken line is refused.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from rubricem_agent.data.turns import TurnReply
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.tool import ToolResult
from rubricem_env.domain.trajectory_json import first_problem


class Entry(Frozen):
    """One event of one episode: the teacher's reply, or the result of the call that it ended in."""

    task: Text
    query: Text = ""
    """The key of the question that was replied to; empty in the journals of earlier releases."""
    teacher: Text = ""
    """Who replied."""
    reply: TurnReply | None = None
    result: ToolResult | None = None


class Journal:
    """Append-only entries in one file; one process writes it at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entries: list[Entry]) -> None:
        """Add entries in one write. A `kill -9` afterwards loses none of them."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(b"".join(entry.model_dump_json(exclude_none=True).encode() + b"\n" for entry in entries))

    def recover(self) -> dict[str, list[Entry]]:
        """The entries of each task so far; a half-written last line is cut off the file.

        Raises:
            FileFormatError: a line before the last is no entry.
        """
        if not self.path.exists():
            return {}
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        by_task: dict[str, list[Entry]] = {}
        for entry in self._parse(whole):
            by_task.setdefault(entry.task, []).append(entry)
        return by_task

    def _parse(self, content: bytes) -> Iterator[Entry]:
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                yield Entry.model_validate_json(line)
            except ValidationError as cause:
                raise FileFormatError(
                    f"{self.path}, line {number} is no journal entry: {first_problem(cause)} "
                    "Restore the file, or start again in another folder."
                ) from cause
