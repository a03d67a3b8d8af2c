"""`google_search` without Gemini: any engine that answers like Serper, a POST with `q` and a list of organic results."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.tools.guard import Answer, CallCost, malformed_reply
from rubricem_env.tools.http import JsonEndpoint
from rubricem_env.tools.spec import GOOGLE_SEARCH_SPEC

DEFAULT_URL = "https://google.serper.dev/search"
_BACKEND = "the web search"


class _Loose(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Organic(_Loose):
    title: str = ""
    link: str = ""
    snippet: str = ""


class _Box(_Loose):
    answer: str | None = None
    snippet: str | None = None
    description: str | None = None

    @property
    def text(self) -> str:
        return self.answer or self.snippet or self.description or ""


class _Reply(_Loose):
    organic: list[_Organic]
    answer_box: _Box | None = Field(default=None, alias="answerBox")
    knowledge_graph: _Box | None = Field(default=None, alias="knowledgeGraph")


class PlainWebSearch:
    """Snippets of the first results, and the engine's own short answer as the summary where it gives one."""

    spec = GOOGLE_SEARCH_SPEC

    def __init__(self, endpoint: JsonEndpoint, *, url: str = DEFAULT_URL, limit: int = 5, fee: float = 0.001) -> None:
        self._endpoint = endpoint
        self._url = url
        self._limit = limit
        self.expected_cost = CallCost(dollars=fee)

    @classmethod
    def connect(
        cls,
        key: SecretStr,
        *,
        url: str = DEFAULT_URL,
        key_header: str = "X-API-KEY",
        limit: int = 5,
        fee: float = 0.001,
    ) -> "PlainWebSearch":
        """`fee` is in dollars a call; `limit` is how many results are asked for."""
        endpoint = JsonEndpoint.connect(_BACKEND, headers={key_header: key.get_secret_value()})
        return cls(endpoint, url=url, limit=limit, fee=fee)

    async def answer(self, call: ToolCall) -> Answer:
        """One request.

        Raises:
            ToolFailure: it failed.
        """
        reply = await self._endpoint.post(self._url, {"q": call.query, "num": self._limit})
        try:
            found = _Reply.model_validate(reply)
        except ValidationError as problem:
            raise malformed_reply(_BACKEND) from problem
        return Answer(_result(found, self._limit), self.expected_cost)

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def _result(found: _Reply, limit: int) -> ToolResult:
    boxes = [box.text for box in (found.answer_box, found.knowledge_graph) if box]
    summary = next((text for text in boxes if text), "")
    organic = [hit for hit in found.organic if hit.snippet.strip()][:limit]
    snippets = tuple(Snippet(text=hit.snippet, title=hit.title, url=hit.link) for hit in organic)
    status = ToolStatus.OK if snippets or summary else ToolStatus.EMPTY
    return ToolResult(status=status, summary=summary, snippets=snippets)
