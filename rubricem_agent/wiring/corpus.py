"""Builds the index of a corpus of documents."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rubricem_agent.wiring.models import build_embedder, requires_extra
from rubricem_env.domain.errors import FileFormatError

if TYPE_CHECKING:
    from rubricem_agent.data.corpus_build import BuiltCorpus
from rubricem_agent.wiring.training_questions import read_rows


def build_corpus(
    sources: Sequence[Path],
    out: Path,
    *,
    passage: int,
    embedder: str | None = None,
    embedder_path: Path | None = None,
    on_passages: Callable[[int], None] = lambda _: None,
) -> tuple["BuiltCorpus", list[Path]]:
    """Index the documents of files and folders; returns what was built, and the files that are of no known kind.

    Raises:
        ConfigError: the folder cannot take the index.
        FileFormatError: a source cannot be read.
        MissingExtraError: a package is missing.
    """
    with requires_extra("documents", "indexing documents"):
        from rubricem_agent.data.corpus_build import build_index
        from rubricem_agent.data.corpus_files import list_sources
        from rubricem_env.tools.pages.reader import PageReader, Unreadable
    files, passed = list_sources(sources)

    def read_page(body: bytes, format: Literal["html", "pdf"]) -> tuple[str, str]:
        try:
            return reader.read_now(body, format)
        except Unreadable as cause:
            raise FileFormatError(str(cause)) from cause

    with closing(PageReader()) as reader:
        built = build_index(
            out,
            files,
            roots=sources,
            passage=passage,
            read_page=read_page,
            read_rows=read_rows,
            embedder=build_embedder(embedder, embedder_path) if embedder is not None else None,
            embedder_path=str(embedder_path.absolute()) if embedder_path is not None else "",
            on_passages=on_passages,
        )
    return built, passed
