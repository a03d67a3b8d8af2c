"""A document of the corpus, and the library that knows what each document claims."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from rubricem_env.domain.base import Frozen
from rubricem_env.tools.corpus import Document

DocumentKind = Literal[
    "page", "sheet", "note", "stale", "change", "letter", "ruling", "dead_end", "table", "convention", "hostile"
]
CONVENTION = "convention"
"""The attribute under which a convention document claims a duty about its domain."""


class Claim(NamedTuple):
    """A document says that the attribute of the subject (an entity id, or a domain) has the value."""

    subject: str
    attribute: str
    value: str


class Draft(NamedTuple):
    """A document before it has a number, with what it claims, true or false."""

    kind: DocumentKind
    title: str
    text: str
    year: int
    field: str
    claims: tuple[Claim, ...] = ()


class FiledDocument(Frozen):
    """A document beside what only the truth may know of it: its kind and its claims."""

    document: Document
    kind: DocumentKind
    claims: tuple[Claim, ...]


class Source(NamedTuple):
    """Where one value of a subject's attribute is claimed."""

    value: str
    kind: DocumentKind
    document_id: str


class Library:
    """All documents of a world in corpus order, with an index of their claims."""

    def __init__(self, filed: tuple[FiledDocument, ...], index: dict[tuple[str, str], tuple[Source, ...]]) -> None:
        self.filed = filed
        self._index = index

    @classmethod
    def of(cls, drafts: Iterable[Draft]) -> "Library":
        """Number the drafts d001, d002, ... in their order and index their claims."""
        filed = tuple(_file(number, draft) for number, draft in enumerate(drafts, start=1))
        index: dict[tuple[str, str], tuple[Source, ...]] = {}
        for entry in filed:
            for claim in entry.claims:
                source = Source(claim.value, entry.kind, entry.document.id)
                key = (claim.subject, claim.attribute)
                index[key] = (*index.get(key, ()), source)
        return cls(filed, index)

    @property
    def documents(self) -> tuple[Document, ...]:
        """The documents in corpus order."""
        return tuple(entry.document for entry in self.filed)

    def sources(self, subject: str, attribute: str) -> tuple[Source, ...]:
        """Every claim about the attribute of the subject, true or false, in corpus order."""
        return self._index.get((subject, attribute), ())

    def holding(self, subject: str, attribute: str, value: str) -> tuple[str, ...]:
        """The ids of the documents that claim this value, in corpus order."""
        return tuple(source.document_id for source in self.sources(subject, attribute) if source.value == value)


def _file(number: int, draft: Draft) -> FiledDocument:
    name = f"d{number:03d}"
    document = Document(
        id=name,
        title=draft.title,
        url=f"https://almanac.example/{name}",
        text=draft.text,
        year=draft.year,
        field=draft.field,
    )
    return FiledDocument(document=document, kind=draft.kind, claims=draft.claims)
