"""Web pages through the toolbox, for FACT."""

from rubricem_env.domain.tool import ToolCall
from rubricem_env.tools.base import FETCH_PAGE, Toolbox


class ToolboxPages:
    """Reads pages with `fetch_page`."""

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox

    async def read(self, url: str) -> str:
        """The text of the page; empty where the tool failed or found nothing."""
        result = await self._toolbox.call(ToolCall(name=FETCH_PAGE, query=url))
        if result.status.is_error:
            return ""
        return result.summary or "\n".join(snippet.text for snippet in result.snippets)
