"""The two search tools answered from a corpus: the offline backend, in the shapes of the real ones."""

from rubricem_env.domain.tool import Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.catalogue import DEFAULT_LIMIT, GOOGLE_SEARCH_SPEC, MAX_LIMIT, SNIPPET_SEARCH_SPEC
from rubricem_env.tools.corpus import Corpus, Hit

_YEARS = (0, 9999)


class CorpusGoogleSearch:
    """`google_search` offline: a summary of the best page, and grounding snippets with title and URL."""

    spec = GOOGLE_SEARCH_SPEC

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    async def call(self, call: ToolCall) -> ToolResult:
        hits = self._corpus.search(call.query, limit=DEFAULT_LIMIT)
        if not hits:
            return ToolResult(status=ToolStatus.EMPTY)
        best = hits[0].document
        return ToolResult(status=ToolStatus.OK, summary=f"{best.title}: {best.text}", snippets=_snippets(hits))


class CorpusSnippetSearch:
    """`snippet_search` offline: snippets alone, with the parameters limit, year and fieldsOfStudy."""

    spec = SNIPPET_SEARCH_SPEC

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    async def call(self, call: ToolCall) -> ToolResult:
        parameters = dict(call.parameters)
        try:
            limit = _read_limit(parameters.get("limit", ""))
            years = _read_years(parameters.get("year", ""))
        except ValueError as problem:
            return ToolResult(status=ToolStatus.ERROR, message=str(problem))
        written = parameters.get("fieldsofstudy", "")
        fields = frozenset(part.strip().casefold() for part in written.split(",") if part.strip())
        hits = self._corpus.search(call.query, limit=limit, years=years, fields=fields)
        status = ToolStatus.OK if hits else ToolStatus.EMPTY
        return ToolResult(status=status, snippets=_snippets(hits))


def offline_toolbox(corpus: Corpus) -> LocalToolbox:
    """Both tools over one corpus."""
    return LocalToolbox(CorpusGoogleSearch(corpus), CorpusSnippetSearch(corpus))


def _snippets(hits: list[Hit]) -> tuple[Snippet, ...]:
    return tuple(Snippet(text=hit.document.text, title=hit.document.title, url=hit.document.url) for hit in hits)


def _read_limit(written: str) -> int:
    if not written:
        return DEFAULT_LIMIT
    if not written.isdecimal() or not 1 <= int(written) <= MAX_LIMIT:
        raise ValueError(f"limit is {written[:20]!r}; it is a whole number from 1 to {MAX_LIMIT}.")
    return int(written)


def _read_years(written: str) -> tuple[int, int] | None:
    """A year, or a range open on either side: 2020, 2018-2022, 2020-, -2015."""
    if not written:
        return None
    first, dash, last = written.partition("-")
    if not all(part.strip().isdecimal() or not part.strip() for part in (first, last)) or not (first or last).strip():
        raise ValueError(f"year is {written[:20]!r}; write a year or a range, such as 2020, 2018-2022, 2020- or -2015.")
    start = int(first) if first.strip() else _YEARS[0]
    if not dash:
        return (start, start)
    return (start, int(last) if last.strip() else _YEARS[1])
