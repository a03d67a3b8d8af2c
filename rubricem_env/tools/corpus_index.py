"""A BM25 index over millions of passages on disk, searched by tantivy. `rubricem corpus build` writes it.

The index is read through memory maps, so processes on one machine share its pages, and a search server keeps no state
of its own: several of them may serve copies of one index behind a balancer.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any

import tantivy
from pydantic import Field
from tantivy import FieldType, Occur, Query, TextAnalyzerBuilder, Tokenizer

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError, RubricEMError
from rubricem_env.domain.inputs import read_text, validating
from rubricem_env.tools.corpus_search import Document, fold, tokenize
from rubricem_env.tools.failures import ToolFailure

INDEX_FILE = "rubricem_index.json"
"""The file of an index folder that says what is in it."""
FORMAT = 2
"""The number of the format that this code writes and reads."""
_ANALYZER = "folded_words"
_SPARE = 8
"""Documents that are found beyond the limit, so that the order of equal scores does not depend on the index's parts."""
_POSTINGS = 1_000_000
"""Words make pairs while they stand in at most this many passages together, the rarest first. The other limits on how
many passages are read are shares or multiples of it."""
_LOOKED_UP = 5
"""A word that stands in more than this many times the passages found is looked up in those, not read whole."""
_MOST_LOOKED_UP = 32
"""Each such word nests the query one level deeper. Two thousand levels overflow tantivy's stack and end the process."""
_RANKED = 70
"""How many passages all words rank, at least: of those found by pairs of words, or by the rarest words alone."""


class IndexedFile(Frozen):
    """A source file of an index, as it was when it was read."""

    size: int
    changed: int
    """The file's time of change, in nanoseconds."""
    sha256: Text
    number: int
    """The number of the file, which its passages have in the index."""
    documents: int = 0
    """How many of its documents are in the index."""
    is_done: bool = False


class IndexManifest(Frozen):
    """What an index holds, and how far it is built."""

    format: int = FORMAT
    passage: int
    """The most characters of a passage."""
    embedder: Text = ""
    """Whose vectors the passages have; empty where they have none. Then its folder, if it was given."""
    embedder_path: Text = ""
    dimension: int = 0
    """The number of dimensions of a vector."""
    files: dict[Text, IndexedFile] = Field(default_factory=dict)
    passages: int = 0
    rows: int = 0
    """Passages that were ever added, which number the next one."""
    commits: int = 0
    next_number: int = 0
    removed: list[int] = Field(default_factory=list)
    """Numbers of files whose passages were to be removed when this was written."""
    is_complete: bool = False

    @property
    def sha256(self) -> str:
        """A hash of what is found: the same for two indexes over the same files, by words or by the same embedder."""
        content = sorted((name, file.sha256) for name, file in self.files.items())
        described = json.dumps([self.format, self.passage, content, *filter(None, [self.embedder])])
        return hashlib.sha256(described.encode()).hexdigest()


def read_manifest(folder: Path) -> IndexManifest | None:
    """What stands in the folder of an index; None where there is no index.

    Raises:
        FileFormatError: the file is damaged, or of another release.
    """
    path = folder / INDEX_FILE
    if not path.exists():
        return None
    with validating(f"cannot read the index {path}", "Build it again in a new folder."):
        manifest = IndexManifest.model_validate_json(read_text(path, "an index that `rubricem corpus build` wrote"))
    if manifest.format != FORMAT:
        raise FileFormatError(
            f"{path} has the format {manifest.format}; this release reads {FORMAT}. Build it again in a new folder."
        )
    return manifest


def open_storage(folder: Path, *, creates: bool = False) -> tantivy.Index:
    """The index of a folder as tantivy has it, with the analyzer that its words were written with.

    Raises:
        FileFormatError: its files are missing or damaged.
    """
    with reading_index(folder, FileFormatError):
        index = tantivy.Index(_schema(), path=str(folder)) if creates else tantivy.Index.open(str(folder))
        index.register_tokenizer(_ANALYZER, TextAnalyzerBuilder(Tokenizer.simple()).build())
    return index


class reading_index:
    """Raise `error` where a library fails on damaged files: a panic of tantivy is no `Exception`."""

    def __init__(self, folder: Path, error: type[FileFormatError] | type[ToolFailure]) -> None:
        self._folder = folder
        self._error = error

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, cause: BaseException | None, trace: object) -> None:
        is_panic = kind is not None and kind.__name__ == "PanicException"
        if is_panic or (isinstance(cause, Exception) and not isinstance(cause, RubricEMError)):
            said = " ".join(str(cause).split())[:200]
            raise self._error(
                f"cannot read the index {self._folder}: {said}. Build it again in a new folder."
            ) from cause


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("words", tokenizer_name=_ANALYZER, index_option="freq")
    builder.add_bytes_field("page", stored=True)
    builder.add_text_field("field", tokenizer_name="raw", index_option="basic")
    builder.add_integer_field("year", indexed=True)
    # Integers, not unsigned ones: tantivy looks a number up by a signed term, and would find none.
    builder.add_integer_field("row", indexed=True, fast=True)
    for name in ("file", "commit"):
        builder.add_integer_field(name, indexed=True)
    return builder.build()


def stored_form(document: Document, *, row: int, file: int, commit: int) -> tantivy.Document:
    """A document as the index stores it."""
    stored = tantivy.Document()
    stored.add_text("words", fold(f"{document.title} {document.text}"))
    stored.add_bytes("page", document.model_dump_json().encode())
    if document.field:
        stored.add_text("field", document.field.casefold())
    if document.year is not None:
        stored.add_integer("year", document.year)
    stored.add_integer("row", row)
    stored.add_integer("file", file)
    stored.add_integer("commit", commit)
    return stored


def _rarest(frequency: Mapping[str, int], postings: int) -> list[str]:
    """The words that stand in so many passages together, the rarest first, and one that stands anywhere in any case."""
    ordered = sorted(frequency, key=lambda word: (frequency[word], word))
    totals = accumulate(frequency[word] for word in ordered)
    return [word for word, total in zip(ordered, totals, strict=True) if total <= postings or total == frequency[word]]


class CorpusIndex:
    """An index that is complete. Read by any number of threads and processes."""

    is_quick = False

    def __init__(self, folder: Path) -> None:
        """Open the index of a folder.

        Raises:
            FileFormatError: there is none, or it is damaged, or its building is not complete.
        """
        manifest = read_manifest(folder)
        if manifest is None:
            raise FileFormatError(
                f"there is no index in {folder}. Build one in a folder of its own with `rubricem corpus build "
                f"{folder if folder.is_dir() else 'FILES'} -o {folder.name}_index`, and give that folder."
            )
        if not manifest.is_complete:
            raise FileFormatError(
                f"the index {folder} is not complete: its building was stopped. Run the same `rubricem corpus build` "
                "again to go on."
            )
        self.manifest = manifest
        self._folder = folder
        self._index = open_storage(folder)
        with reading_index(folder, FileFormatError):
            self._searcher = self._index.searcher()

    def search(
        self, query: str, *, limit: int, years: tuple[int, int] | None = None, fields: frozenset[str] = frozenset()
    ) -> list[Document]:
        """As `DocumentSearch` says. The words of the query are looked up; nothing in it is an operator."""
        return [document for _, document in self.ranked(query, limit=limit, years=years, fields=fields)]

    def ranked(
        self, query: str, *, limit: int, years: tuple[int, int] | None, fields: frozenset[str]
    ) -> list[tuple[int, Document]]:
        """What `search` finds, each with its row.

        Raises:
            ToolFailure: the files of the index are damaged.
        """
        with reading_index(self._folder, ToolFailure):
            return self._ranked(query, limit=limit, years=years, fields=fields)

    def _ranked(
        self, query: str, *, limit: int, years: tuple[int, int] | None, fields: frozenset[str]
    ) -> list[tuple[int, Document]]:
        # A word that is asked for twice counts twice, as in the corpus in memory.
        words = tokenize(query)
        search = partial(self._hits, years=years, fields=fields)
        frequency = {word: self._searcher.doc_freq("words", word) for word in set(words)}
        if len(_rarest(frequency, _POSTINGS // 2)) == len(frequency):
            hits = search(Query.boolean_query(self._any("words", words)), limit=limit + _SPARE)
        else:
            number = max(_RANKED, 4 * limit)
            paired = self._paired(words, frequency)
            hits = search(paired, limit=number) if paired else []
            if len(hits) < number:  # Words that seldom stand together.
                rarest = _rarest(frequency, 4 * _POSTINGS // 5)
                alone = self._any("words", [word for word in words if word in rarest])
                # One word by itself is read faster than a union of one.
                hits = search(alone[0][1] if len(alone) == 1 else Query.boolean_query(alone), limit=number)
            ranked = self._scored(self._any("row", [row for _, row, _ in hits]), words, frequency, number=len(hits))
            # Looking up rows takes longer than ranking them.
            rows = {(address.segment_ord, address.doc): row for _, row, address in hits}
            best = self._searcher.search(ranked, limit + _SPARE, count=False).hits
            hits = [(float(score), rows[at.segment_ord, at.doc], at) for score, at in best]
        ordered = sorted(hits, key=lambda hit: (-hit[0], hit[1]))[:limit]
        return [(row, self._document(address)) for _, row, address in ordered]

    def at_rows(
        self, rows: Sequence[int], *, years: tuple[int, int] | None, fields: frozenset[str]
    ) -> dict[int, Document]:
        """The documents of rows; without those that are gone or that the filters leave out.

        Raises:
            ToolFailure: the files of the index are damaged.
        """
        if not rows:
            return {}
        with reading_index(self._folder, ToolFailure):
            hits = self._hits(Query.boolean_query(self._any("row", rows)), limit=len(rows), years=years, fields=fields)
            return {row: self._document(address) for _, row, address in hits}

    def _paired(self, words: Sequence[str], frequency: Mapping[str, int]) -> Query | None:
        """The passages with one of the rarest words, or with two of the next, scored by these.

        It is None if no word is so rare.
        """
        alone = [word for word in _rarest(frequency, _POSTINGS // 100) if frequency[word] <= _POSTINGS // 100]
        counted = _rarest(frequency, 2 * _POSTINGS)
        pairs = list(combinations(_rarest(frequency, _POSTINGS)[len(alone) :], 2))
        # A pair takes as long as its rarer word.
        led = accumulate(frequency[rarer] for rarer, _ in pairs)
        clauses = self._any("words", alone)
        number = sum(frequency[word] for word in alone)
        for (rarer, other), total in zip(pairs, led, strict=True):
            if total <= _POSTINGS // (10 if clauses else 5):
                both = [(Occur.Must, word) for _, word in self._any("words", (rarer, other))]
                clauses.append((Occur.Should, Query.boolean_query(both)))
                number += frequency[rarer] * frequency[other] // self._searcher.num_docs
        if not clauses:
            return None
        return self._scored(clauses, [word for word in words if word in counted], frequency, number=number)

    def _scored(
        self, clauses: Sequence[tuple[Occur, Query]], words: Sequence[str], frequency: Mapping[str, int], *, number: int
    ) -> Query:
        """What any of the clauses finds, about so many passages, scored by the words alone."""
        # A union reads all passages of its words. A frequent word is looked up in what is found, which takes less.
        looked_up = [word for word in words if frequency[word] > _LOOKED_UP * number][:_MOST_LOOKED_UP]
        read = (Counter(words) - Counter(looked_up)).elements()
        among = Query.const_score_query(Query.boolean_query(clauses), 0.0)
        scored = Query.boolean_query([(Occur.Must, among), *self._any("words", list(read))])
        for word in looked_up:
            scored = Query.boolean_query([(Occur.Must, scored), *self._any("words", [word])])
        return scored

    def _any(self, field: str, values: Sequence[str | int]) -> list[tuple[Occur, Query]]:
        """The clauses of a query for any of the values: several times faster than one query for a set of values."""
        option = "freq" if field == "words" else "basic"
        terms = (Query.term_query(self._index.schema, field, value, index_option=option) for value in values)
        return [(Occur.Should, term) for term in terms]

    def _hits(
        self, words: Query, *, limit: int, years: tuple[int, int] | None, fields: frozenset[str]
    ) -> list[tuple[float, int, tantivy.DocAddress]]:
        """Scores, rows and addresses."""
        schema = self._index.schema
        filters = []
        if years is not None:
            within = Query.range_query(schema, "year", FieldType.Integer, years[0], years[1], use_inverted_index=True)
            filters.append((Occur.Must, Query.const_score_query(within, 0.0)))
        if fields:
            among = Query.term_set_query(schema, "field", sorted(fields))
            filters.append((Occur.Must, Query.const_score_query(among, 0.0)))
        # Alone, a union of words skips the blocks that cannot hold a better hit.
        whole = Query.boolean_query([(Occur.Must, words), *filters]) if filters else words
        hits = self._searcher.search(whole, limit, count=False).hits
        rows: list[Any] = self._searcher.fast_field_values("row", [address for _, address in hits])
        return [(float(score), row, address) for (score, address), row in zip(hits, rows, strict=True)]

    def _document(self, address: tantivy.DocAddress) -> Document:
        return Document.model_validate_json(bytes(self._searcher.doc(address)["page"][0]))
