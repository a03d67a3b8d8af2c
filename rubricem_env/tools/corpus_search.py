"""The two search tools over documents: the offline backend, with results in the shape of the real engines.

`Corpus` holds documents in memory and ranks them by BM25, always in the same order, without network and with numpy
alone. What is larger is searched on disk by `CorpusIndex` (corpus_index.py).
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol
from unicodedata import normalize

import numpy as np

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import read_lines, validating
from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolResult
from rubricem_env.tools.arguments import read_years
from rubricem_env.tools.base import FunctionTool, LocalToolbox
from rubricem_env.tools.spec import DEFAULT_LIMIT, GOOGLE_SEARCH_SPEC, SNIPPET_SEARCH_SPEC

_WORD = re.compile(r"[^\W_]+")
_SIGN = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
"""A letter of a script that is written without spaces: each is a word of its own."""
_K1 = 1.2
_B = 0.75  # the usual BM25 constants
_EXAMPLE = '{"id": "1", "title": "Tall Fox", "url": "https://...", "text": "Tall Fox has width 60 m."}'
_FIELDS = "id, title, url and text, may have year and field"


class Document(Frozen):
    """One page of the corpus."""

    id: Text
    title: Text
    url: Text
    text: Text
    year: int | None = None
    field: Text = ""
    """The field of study, for filters."""


def read_documents(path: Path) -> list[Document]:
    """The documents of a JSONL file, one a line; blank lines are skipped.

    Raises:
        FileFormatError: the file is missing or holds no document, a line is malformed, or an id occurs twice.
    """
    documents: dict[str, Document] = {}
    for where, line in read_lines(path, "a JSONL file of documents"):
        with validating(f"{where} is not a document", f"A document has {_FIELDS}, and nothing else."):
            document = Document.model_validate_json(line)
        if document.id in documents:
            raise FileFormatError(f"{where}: the id {document.id!r} occurs twice; ids are unique.")
        documents[document.id] = document
    if not documents:
        raise FileFormatError(f"the corpus {path} holds no document; write one a line, such as {_EXAMPLE}")
    return list(documents.values())


def fold(text: str) -> str:
    """The text in lower case and in one form of each letter, with spaces where a script has none between words."""
    folded = text.casefold()
    return folded if folded.isascii() else _SIGN.sub(r" \g<0> ", normalize("NFKC", folded))


def tokenize(text: str) -> list[str]:
    """The words by which a query and a document are compared."""
    return _WORD.findall(fold(text))


def split_passages(text: str, size: int) -> list[str]:
    """A text in passages of at most `size` characters, which end at lines, sentences or words where they can."""
    passages: list[str] = []
    at = 0
    while at < len(text):
        end = len(text) if len(text) - at <= size else _last_break(text, at, size)
        passages.append(text[at:end].strip())
        at = end
    return [passage for passage in passages if passage]


def _last_break(text: str, at: int, size: int) -> int:
    for mark in ("\n", ". ", "\u3002", " "):
        index = text.rfind(mark, at + size // 2, at + size)
        if index > 0:
            return index + len(mark)
    return at + size


class DocumentSearch(Protocol):
    """Documents that can be searched."""

    is_quick: bool
    """Whether a search may run on the event loop."""

    def search(
        self, query: str, *, limit: int, years: tuple[int, int] | None = None, fields: frozenset[str] = frozenset()
    ) -> list[Document]:
        """The best documents, best first, equal scores in corpus order. Each shares a word with the query.

        `years` are the first and the last year, `fields` the fields of study in lower case that it may have.
        """


class Corpus:
    """An inverted index over documents in memory. Built once, read by any number of threads."""

    is_quick = True

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents = tuple(documents)
        self._postings = _build_postings(self.documents)
        """The rows of the documents that have a word, by word, and what the word is worth in each."""

    @classmethod
    def from_jsonl(cls, path: Path) -> "Corpus":
        return cls(read_documents(path))

    def search(
        self, query: str, *, limit: int, years: tuple[int, int] | None = None, fields: frozenset[str] = frozenset()
    ) -> list[Document]:
        """As `DocumentSearch` says."""
        scores = np.zeros(len(self.documents))
        for word, count in Counter(tokenize(query)).items():
            if word in self._postings:
                rows, weights = self._postings[word]
                scores[rows] += count * weights
        best: list[Document] = []
        for row in np.argsort(-scores, kind="stable"):
            if scores[row] <= 0 or len(best) == limit:
                break
            document = self.documents[int(row)]
            in_years = years is None or (document.year is not None and years[0] <= document.year <= years[1])
            if in_years and (not fields or document.field.casefold() in fields):
                best.append(document)
        return best


def _build_postings(documents: tuple[Document, ...]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    counts = [Counter(tokenize(f"{document.title} {document.text}")) for document in documents]
    lengths = np.array([sum(count.values()) for count in counts], dtype=float)
    mean_length = float(lengths.mean()) if len(lengths) else 1.0
    rows: dict[str, list[int]] = {}
    occurrences: dict[str, list[int]] = {}
    for row, count in enumerate(counts):
        for word, times in count.items():
            rows.setdefault(word, []).append(row)
            occurrences.setdefault(word, []).append(times)
    postings: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for word, where in rows.items():
        at = np.array(where)
        often = np.array(occurrences[word], dtype=float)
        rarity = np.log1p((len(documents) - len(at) + 0.5) / (len(at) + 0.5))
        damped = often * (_K1 + 1) / (often + _K1 * (1 - _B + _B * lengths[at] / mean_length))
        postings[word] = (at, rarity * damped)
    return postings


def offline_toolbox(corpus: DocumentSearch) -> LocalToolbox:
    """Both search tools over the same documents.

    `google_search` gives a summary of the best page and snippets with title and URL; `snippet_search` gives snippets
    alone, with the parameters limit, year and fieldsOfStudy.
    """

    async def search(query: str, limit: int, **filters: Any) -> list[Document]:
        if corpus.is_quick:
            return corpus.search(query, limit=limit, **filters)
        return await asyncio.to_thread(corpus.search, query, limit=limit, **filters)

    async def search_web(call: ToolCall) -> ToolResult:
        documents = await search(call.query, DEFAULT_LIMIT)
        return _result(documents, summary=f"{documents[0].title}: {documents[0].text}" if documents else "")

    async def search_papers(call: ToolCall) -> ToolResult:
        parameters = dict(call.parameters)
        limit = int(parameters.get("limit", DEFAULT_LIMIT))
        years = read_years(parameters.get("year", ""))
        written = parameters.get("fieldsofstudy", "")
        fields = frozenset(part.strip().casefold() for part in written.split(",") if part.strip())
        return _result(await search(call.query, limit, years=years, fields=fields))

    return LocalToolbox(FunctionTool(GOOGLE_SEARCH_SPEC, search_web), FunctionTool(SNIPPET_SEARCH_SPEC, search_papers))


def _result(documents: list[Document], summary: str = "") -> ToolResult:
    snippets = tuple(Snippet(text=document.text, title=document.title, url=document.url) for document in documents)
    return ToolResult.found(snippets, summary)
