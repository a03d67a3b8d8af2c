"""Several toolboxes as one."""

from typing import Protocol

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.tool import ToolCall, ToolResult
from rubricem_env.tools.base import Toolbox, unknown_tool
from rubricem_env.tools.repair import find_tool
from rubricem_env.tools.spec import ToolSpec


class DescribedToolbox(Toolbox, Protocol):
    """A toolbox that knows what its tools take."""

    @property
    def specs(self) -> tuple[ToolSpec, ...]: ...


class JoinedToolbox:
    """Each call goes to the toolbox that has the tool, near misses included."""

    def __init__(self, *toolboxes: DescribedToolbox) -> None:
        """Raises ConfigError where two of them have a tool of the same name."""
        self._toolboxes = toolboxes
        self._specs = tuple(spec for toolbox in toolboxes for spec in toolbox.specs)
        _refuse_twins(self._specs)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self._specs)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    async def call(self, call: ToolCall) -> ToolResult:
        spec = find_tool(call.name, self._specs)
        if spec is None:
            return unknown_tool(call.name, self.names)
        toolbox = next(each for each in self._toolboxes if spec in each.specs)
        return await toolbox.call(call)


def _refuse_twins(specs: tuple[ToolSpec, ...]) -> None:
    names = [spec.name for spec in specs]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise ConfigError(
            f"two toolboxes offer {twins[0]!r}; a policy could not say which it means. "
            "Choose among the tools of one of them with `only`."
        )
