"""The journal of a run that generates teacher data: a line for every turn and every tool result.

Each line is written before the next step, so that a killed run resumes and pays for nothing twice. A truncated last
line is dropped; any other broken line is refused.
"""

from collections.abc import Iterable

from rubricem_agent.data.base import TurnReply
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.inputs import validating
from rubricem_env.domain.trajectory import ToolResult
from rubricem_records.files.atomic_files import MAKE_ROOM, writing
from rubricem_records.files.line_file import LineFile


class JournalEntry(Frozen):
    """One event of one episode: the teacher's reply, or the result of the call that it ended in."""

    task: Text
    query: Text = ""
    """The key of the question that was replied to; empty for a result."""
    teacher: Text = ""
    """Who replied."""
    reply: TurnReply | None = None
    result: ToolResult | None = None


def append_entries(journal: LineFile, entries: Iterable[JournalEntry]) -> None:
    """Add entries in one write. A `kill -9` afterwards loses none of them.

    Raises:
        ConfigError: the disk refuses the write.
    """
    with writing(journal.path, MAKE_ROOM):
        journal.append([entry.model_dump_json(exclude_none=True).encode() for entry in entries])


def recover_entries(journal: LineFile) -> dict[str, list[JournalEntry]]:
    """The entries of each task so far; a truncated last line is removed from the file.

    Raises:
        FileFormatError: a line before the last is no entry.
    """
    journal.repair()
    by_task: dict[str, list[JournalEntry]] = {}
    for number, line in enumerate(journal.read(), start=1):
        where = f"{journal.path}, line {number}"
        with validating(f"{where} is no journal entry", "Restore the file, or start again in another folder."):
            entry = JournalEntry.model_validate_json(line)
        by_task.setdefault(entry.task, []).append(entry)
    return by_task
