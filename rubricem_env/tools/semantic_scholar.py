"""`snippet_search`: excerpts of scientific papers from Semantic Scholar."""

from typing import Any

from pydantic import SecretStr, ValidationError

from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.guard import malformed_reply
from rubricem_env.tools.http import JsonEndpoint
from rubricem_env.tools.spec import DEFAULT_LIMIT, SNIPPET_SEARCH_SPEC

DEFAULT_URL = "https://api.semanticscholar.org"
_PATH = "/graph/v1/snippet/search"
_PAPER = "https://api.semanticscholar.org/CorpusID:{id}"
_BACKEND = "Semantic Scholar"


class SemanticScholarSearch:
    """The snippet endpoint. Works without a key at a low rate; a key raises it."""

    spec = SNIPPET_SEARCH_SPEC
    model = ""
    fee = 0.0
    expected = Usage(calls=1)

    def __init__(self, endpoint: JsonEndpoint, url: str = DEFAULT_URL) -> None:
        self._endpoint = endpoint
        self._url = url.rstrip("/") + _PATH

    @classmethod
    def connect(cls, *, key: SecretStr | None = None, url: str = DEFAULT_URL) -> "SemanticScholarSearch":
        headers = {"x-api-key": key.get_secret_value()} if key else {}
        return cls(JsonEndpoint.connect(_BACKEND, headers=headers), url)

    async def answer(self, call: ToolCall) -> tuple[ToolResult, Usage]:
        """One request.

        Raises:
            ToolFailure: it failed.
        """
        parameters = dict(call.parameters)
        query = {"query": call.query, "limit": parameters.get("limit", str(DEFAULT_LIMIT))}
        if "year" in parameters:
            query["year"] = "".join(parameters["year"].split())
        if "fieldsofstudy" in parameters:
            query["fieldsOfStudy"] = ",".join(part.strip() for part in parameters["fieldsofstudy"].split(","))
        reply = await self._endpoint.get(self._url, query)
        try:
            snippets = _read_reply(reply)
        except (AttributeError, KeyError, TypeError, ValidationError) as problem:
            raise malformed_reply(_BACKEND) from problem
        status = ToolStatus.OK if snippets else ToolStatus.EMPTY
        return ToolResult(status=status, snippets=snippets), self.expected

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def _read_reply(reply: Any) -> tuple[Snippet, ...]:
    if not isinstance(reply["data"], list):
        raise TypeError("a list of hits is required: a message about a limit must not be read as an empty list")
    snippets = []
    for hit in reply["data"]:
        # Documented as a string, seen as a number.
        paper_id = hit["paper"].get("corpusId")
        url = _PAPER.format(id=paper_id) if paper_id else ""
        snippets.append(Snippet(text=hit["snippet"].get("text", ""), title=hit["paper"].get("title") or "", url=url))
    return tuple(snippet for snippet in snippets if snippet.text.strip())
