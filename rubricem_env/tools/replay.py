"""A toolbox that answers from a record: the same calls give the same results, without network, key or clock."""

from collections import Counter
from pathlib import Path

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.tools.record import CallRecord, read_record

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
