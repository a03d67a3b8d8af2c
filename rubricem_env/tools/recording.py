"""A toolbox that writes down every call and what came back."""

from pathlib import Path

from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.record import RecordedCall, RecordHead, write_line


class RecordingToolbox:
    """Passes calls through, and appends each with its result to a file, whole lines only, in order of completion."""

    def __init__(self, toolbox: Toolbox, path: Path) -> None:
        self._toolbox = toolbox
        self._path = path
        self._is_begun = False

    @property
    def names(self) -> tuple[str, ...]:
        return self._toolbox.names

    async def call(self, call: ToolCall) -> ToolResult:
        """Call, then write; a call that is cancelled leaves no line."""
        result = await self._toolbox.call(call)
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
