"""The search services that are asked over HTTP: what each costs, allows and needs, and how it is asked and read.

`ENGINES` has the facts (engines.json, from the services' own documents of November 2026), `WIRES` the formats. There is
no I/O here: `SearchEngine` (http.py) makes the calls. Gemini, which has a library of its own, has no wire.
"""

import html
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.trajectory import Snippet, ToolResult, ToolStatus
from rubricem_env.llm.limits.limiter import Rates
from rubricem_env.llm.prices import Dollars
from rubricem_env.tools.arguments import read_years
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.spec import SHIPPED_SPECS, ToolSpec

_JOINT = " [...] "
"""The text that stands between two excerpts of one page."""
_ATOM = "{http://www.w3.org/2005/Atom}"
_PAPER = "https://api.semanticscholar.org/CorpusID:{id}"


class EngineFacts(Frozen):
    """The facts of one search service."""

    tool: Text
    """The tool that it answers."""
    url: Text = ""
    """Its address; empty for a server of one's own."""
    key: Text = ""
    """The environment variable of its key; empty where it has none."""
    needs_key: bool = True
    """Whether it needs its key. Where it does not, it works without it at a low rate."""
    header: Text = ""
    """The header that carries the key, or else the parameter of the address."""
    parameter: Text = ""
    price: Dollars
    """The price of 1,000 calls, in dollars."""
    rates: Rates
    returns: Text

    @property
    def spec(self) -> ToolSpec:
        return next(spec for spec in SHIPPED_SPECS if spec.name == self.tool)


ENGINES: Mapping[str, EngineFacts] = MappingProxyType(
    TypeAdapter(dict[str, EngineFacts]).validate_json(package_text("rubricem_env.tools", "engines.json"))
)
"""The services, by the name that a config writes. `plain` is serper at another address."""


class EngineRequest(NamedTuple):
    """One request: a POST of `body` as JSON where there is one, else a GET."""

    path: str = ""
    params: Mapping[str, str] = MappingProxyType({})
    body: Mapping[str, Any] | None = None


class EngineWire(NamedTuple):
    """The format of one service."""

    ask: Callable[[str, int, Mapping[str, str]], EngineRequest]
    """The request for a query, a number of results, and the call's parameters."""
    read: Callable[[Any], ToolResult]
    """The result in the JSON or XML of a reply; KeyError, TypeError or AttributeError where a part is missing."""
    is_xml: bool = False


def _hits(rows: Any, text: Callable[[Any], str | list[str] | None], url: str = "url") -> tuple[Snippet, ...]:
    """The hits that have a text, each with its title and address; some services write `&` as an HTML entity."""
    if not isinstance(rows, list):
        raise TypeError("a list of hits is required: a message about a limit must not be read as an empty list")
    snippets = []
    for row in rows:
        parts = text(row) or ""
        words = html.unescape(parts if isinstance(parts, str) else _JOINT.join(filter(None, parts)))
        if words.strip():
            snippets.append(Snippet(text=words, title=html.unescape(row.get("title") or ""), url=row.get(url) or ""))
    return tuple(snippets)


def _read_serper(reply: Any) -> ToolResult:
    """The organic results, and Google's own short answer as the summary if there is one."""
    boxes = [reply.get(key) or {} for key in ("answerBox", "knowledgeGraph")]
    summaries = [box.get("answer") or box.get("snippet") or box.get("description") or "" for box in boxes]
    snippets = _hits(reply["organic"], lambda hit: hit.get("snippet"), url="link")
    return ToolResult.found(snippets, next(filter(None, summaries), ""))


def _ask_brave(query: str, limit: int, _: Mapping[str, str]) -> EngineRequest:
    # A longer query is refused: 400 characters and 50 words.
    short = " ".join(query.split()[:50])[:400]
    sent = {"q": short, "count": str(min(limit, 20)), "text_decorations": "false", "extra_snippets": "true"}
    return EngineRequest("/res/v1/web/search", sent)


def _read_brave(reply: Any) -> ToolResult:
    """A search without results has no part `web`."""
    if reply["type"] != "search":
        raise TypeError("the reply of a search is required")
    rows = reply["web"]["results"] if reply.get("web") else []
    return ToolResult.found(_hits(rows, lambda hit: [hit.get("description") or "", *(hit.get("extra_snippets") or ())]))


def _read_searxng(reply: Any) -> ToolResult:
    """Nothing at all from engines that do not respond is a failure, and not an empty result."""
    texts = [answer if isinstance(answer, str) else answer.get("answer") or "" for answer in reply.get("answers") or ()]
    texts += [box.get("content") or "" for box in reply.get("infoboxes") or ()]
    result = ToolResult.found(_hits(reply["results"], lambda hit: hit.get("content")), next(filter(None, texts), ""))
    silent = reply.get("unresponsive_engines") or ()
    if result.status is ToolStatus.EMPTY and silent:
        names = ", ".join(f"{name} ({reason})" for name, reason in silent[:5])
        raise ToolFailure(f"searxng gave no results: its engines do not answer: {names}.", is_retryable=True)
    return result


def _ask_scholar(query: str, limit: int, parameters: Mapping[str, str]) -> EngineRequest:
    sent = {"query": query, "limit": str(limit)}
    if "year" in parameters:
        sent["year"] = "".join(parameters["year"].split())
    if "fieldsofstudy" in parameters:
        sent["fieldsOfStudy"] = ",".join(part.strip() for part in parameters["fieldsofstudy"].split(","))
    return EngineRequest("/graph/v1/snippet/search", sent)


def _read_scholar(reply: Any) -> ToolResult:
    if not isinstance(reply["data"], list):
        raise TypeError("a list of hits is required")
    rows = [{**hit["snippet"], **hit["paper"]} for hit in reply["data"]]
    for row in rows:
        # Documented as a string, seen as a number.
        row["url"] = _PAPER.format(id=row["corpusId"]) if row.get("corpusId") else ""
    return ToolResult.found(_hits(rows, lambda hit: hit.get("text")))


def _ask_openalex(query: str, limit: int, parameters: Mapping[str, str]) -> EngineRequest:
    filters = ["has_abstract:true"]
    if years := read_years(parameters.get("year", "")):
        filters += [f"from_publication_date:{years[0]:04}-01-01", f"to_publication_date:{years[1]:04}-12-31"]
    fields = "id,doi,title,abstract_inverted_index"
    # These signs are operators of its search.
    sent = {"search": re.sub(r"[?*~|!]", " ", query), "filter": ",".join(filters), "select": fields}
    return EngineRequest("/works", {**sent, "per_page": str(limit)})


def _read_openalex(reply: Any) -> ToolResult:
    """Abstracts, which are sent as the positions of each word."""

    def abstract(work: Any) -> str:
        words = [(at, word) for word, places in (work["abstract_inverted_index"] or {}).items() for at in places]
        return " ".join(word for _, word in sorted(words))

    rows = reply["results"]
    for work in rows if isinstance(rows, list) else ():
        work["url"] = work.get("doi") or work["id"]
    return ToolResult.found(_hits(rows, abstract))


def _ask_arxiv(query: str, limit: int, parameters: Mapping[str, str]) -> EngineRequest:
    search = " OR ".join(f"all:{word}" for word in re.findall(r"\w+", query)[:40])
    if years := read_years(parameters.get("year", "")):
        search = f"({search}) AND submittedDate:[{years[0]:04}01010000 TO {years[1]:04}12312359]"
    return EngineRequest("/api/query", {"search_query": search, "max_results": str(limit), "sortBy": "relevance"})


def _read_arxiv(feed: Any) -> ToolResult:
    """Abstracts of an Atom feed; a refusal is an entry whose title is Error."""
    if feed.tag != f"{_ATOM}feed":
        raise TypeError("an Atom feed is required")
    rows = [
        {name: " ".join((entry.findtext(_ATOM + name) or "").split()) for name in ("title", "id", "summary")}
        for entry in feed.iter(f"{_ATOM}entry")
    ]
    if [row["title"] for row in rows] == ["Error"]:
        raise ToolFailure(f"arxiv gave no results: {rows[0]['summary']}.")
    return ToolResult.found(_hits(rows, lambda row: row["summary"], url="id"))


_SERPER = EngineWire(lambda query, limit, _: EngineRequest(body={"q": query, "num": limit}), _read_serper)
WIRES: Mapping[str, EngineWire] = MappingProxyType(
    {
        "serper": _SERPER,
        "plain": _SERPER,
        "tavily": EngineWire(
            lambda query, limit, _: EngineRequest(
                "/search", body={"query": query, "max_results": min(limit, 20), "include_answer": True}
            ),
            lambda reply: ToolResult.found(
                _hits(reply["results"], lambda hit: hit.get("content")), reply.get("answer") or ""
            ),
        ),
        "exa": EngineWire(
            lambda query, limit, _: EngineRequest(
                "/search", body={"query": query, "numResults": limit, "contents": {"highlights": True}}
            ),
            lambda reply: ToolResult.found(_hits(reply["results"], lambda hit: hit.get("highlights"))),
        ),
        "brave": EngineWire(_ask_brave, _read_brave),
        "searxng": EngineWire(
            lambda query, *_: EngineRequest("/search", {"q": query, "format": "json"}), _read_searxng
        ),
        "semantic_scholar": EngineWire(_ask_scholar, _read_scholar),
        "openalex": EngineWire(_ask_openalex, _read_openalex),
        "arxiv": EngineWire(_ask_arxiv, _read_arxiv, is_xml=True),
    }
)
