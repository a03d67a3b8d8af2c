"""A toolbox that writes down every call and what came back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.record import RecordedCall, RecordHead, write_line


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
