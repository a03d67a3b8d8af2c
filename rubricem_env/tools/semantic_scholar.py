"""`snippet_search`: excerpts of scientific papers from Semantic Scholar."""

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.tools.guard import Answer, CallCost, malformed_reply
from rubricem_env.tools.http import JsonEndpoint
from rubricem_env.tools.spec import DEFAULT_LIMIT, SNIPPET_SEARCH_SPEC

DEFAULT_URL = "https://api.semanticscholar.org"
_PATH = "/graph/v1/snippet/search"
_PAPER = "https://api.semanticscholar.org/CorpusID:{id}"
_BACKEND = "Semantic Scholar"


class _Loose(BaseModel):
    """The service adds fields as it likes; only these are read."""

    model_config = ConfigDict(extra="ignore")


class _Excerpt(_Loose):
    text: str = ""


class _Paper(_Loose):
    # Documented as a string, seen as a number.
    corpus_id: str | int | None = Field(default=None, alias="corpusId")
    title: str | None = None


class _Hit(_Loose):
    snippet: _Excerpt
    paper: _Paper


class _Reply(_Loose):
    hits: list[_Hit] = Field(alias="data")
    """Required: a message about a limit must not be read as finding nothing."""


class SemanticScholarSearch:
    """The snippet endpoint. Works without a key at a low rate; a key raises it."""

    spec = SNIPPET_SEARCH_SPEC
    expected_cost = CallCost()

    def __init__(self, endpoint: JsonEndpoint, url: str = DEFAULT_URL) -> None:
        self._endpoint = endpoint
        self._url = url.rstrip("/") + _PATH

    @classmethod
    def connect(cls, *, key: SecretStr | None = None, url: str = DEFAULT_URL) -> "SemanticScholarSearch":
        headers = {"x-api-key": key.get_secret_value()} if key else {}
        return cls(JsonEndpoint.connect(_BACKEND, headers=headers), url)

    async def answer(self, call: ToolCall) -> Answer:
        """One request.

        Raises:
            ToolFailure: it failed.
        """
        reply = await self._endpoint.get(self._url, _query(call))
        try:
            hits = _Reply.model_validate(reply).hits
        except ValidationError as problem:
            raise malformed_reply(_BACKEND) from problem
        snippets = tuple(_snippet(hit) for hit in hits if hit.snippet.text.strip())
        return Answer(ToolResult(status=ToolStatus.OK if snippets else ToolStatus.EMPTY, snippets=snippets))

    async def aclose(self) -> None:
        await self._endpoint.aclose()


def _query(call: ToolCall) -> dict[str, str]:
    parameters = dict(call.parameters)
    asked = {"query": call.query, "limit": parameters.get("limit", str(DEFAULT_LIMIT))}
    if "year" in parameters:
        asked["year"] = "".join(parameters["year"].split())
    if "fieldsofstudy" in parameters:
        asked["fieldsOfStudy"] = ",".join(part.strip() for part in parameters["fieldsofstudy"].split(","))
    return asked


def _snippet(hit: _Hit) -> Snippet:
    paper = hit.paper
    url = _PAPER.format(id=paper.corpus_id) if paper.corpus_id else ""
    return Snippet(text=hit.snippet.text, title=paper.title or "", url=url)
