"""Builds and brings up to date the search index of a user's documents.

The index is committed every so many passages, and the manifest beside it is written after each commit, so that a killed
build goes on where it was. Only files that are new or have changed are read again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.data.corpus_files import ReadPage, ReadRows, SourceFile, read_documents_of
from rubricem_agent.data.corpus_vectors import write_cells, write_vectors
from rubricem_agent.data.question_files import stream_rows
from rubricem_agent.memory.embed import Embedder, Floats
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.tools.corpus_index import (
    INDEX_FILE,
    IndexedFile,
    IndexManifest,
    open_storage,
    read_manifest,
    stored_form,
)
from rubricem_env.tools.corpus_search import Document, split_passages
from rubricem_records.files.atomic_files import MAKE_ROOM, write_atomic, writing
from rubricem_records.files.file_hash import sha256
from rubricem_records.files.line_file import LineFile

_LOCK = "rubricem_index.lock"
_COMMIT_EVERY = 100_000
_WRITER_BYTES = 256 << 20
_EMBEDDED_AT_ONCE = 256
OnPassages = Callable[[int], None]


class BuiltCorpus(NamedTuple):
    """What a build did."""

    passages: int
    """In the index, those of earlier builds included."""
    files: int
    read: int
    """Files that were new or had changed."""
    dropped: int
    """Files that are gone, and whose passages were removed."""
    skipped: dict[str, str]
    """By file that lacks documents for it: how many rows were passed over, and why the first was."""


def build_index(
    folder: Path,
    sources: Sequence[SourceFile],
    *,
    roots: Sequence[Path],
    passage: int,
    read_page: ReadPage,
    read_rows: ReadRows = stream_rows,
    embedder: Embedder | None = None,
    embedder_path: str = "",
    on_passages: OnPassages = lambda _: None,
    commit_every: int = _COMMIT_EVERY,
) -> BuiltCorpus:
    """Write the passages of all sources to the index of a folder, and remove those of files that are gone from `roots`.

    With an embedder their vectors are written too.

    Raises:
        ConfigError: the folder holds something else or is in use, its passages are of another size or embedder, or the
            disk is full.
        FileFormatError: a source, or the index, cannot be read.
    """
    with writing(folder, "Choose another folder with -o."):
        folder.mkdir(parents=True, exist_ok=True)
    present = read_manifest(folder)
    others = [file.name for file in folder.iterdir() if file.name != _LOCK]
    if present is None and others and not (folder / _LOCK).exists():
        raise ConfigError(f"{folder} holds other files, such as {sorted(others)[0]}. Choose a new folder with -o.")
    if present is not None and present.passage != passage:
        raise ConfigError(
            f"{folder} has passages of {present.passage} characters; you asked for {passage}. Give --passage "
            f"{present.passage}, or another folder with -o."
        )
    given = embedder.name if embedder is not None else ""
    if present is not None and present.embedder != given:
        raise ConfigError(
            f"{folder} has {_vectors_of(present.embedder)}; you asked for {_vectors_of(given)}. Give the same "
            "--embedder, or another folder."
        )
    manifest = present or IndexManifest(
        passage=passage, embedder=given, embedder_path=embedder_path, dimension=embedder.dimension if embedder else 0
    )
    with _locked(folder), writing(folder, MAKE_ROOM):
        return _Build(folder, manifest, commit_every, on_passages, embedder).run(
            sources, roots=roots, read_page=read_page, read_rows=read_rows
        )


def _vectors_of(embedder: str) -> str:
    return f"vectors of {embedder}" if embedder else "no vectors"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = LineFile(folder / _LOCK)
    try:
        lock.lock()
    except BlockingIOError as cause:
        raise ConfigError(f"the index {folder} is being built by another process. Wait for its end.") from cause
    with closing(lock):
        yield


class _Build:
    """One build: the writer of the index, and the manifest that follows it."""

    def __init__(
        self,
        folder: Path,
        manifest: IndexManifest,
        commit_every: int,
        on_passages: OnPassages,
        embedder: Embedder | None,
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._files = dict(manifest.files)
        self._removed = list(manifest.removed)
        self._next_number = manifest.next_number
        self._commit_every = commit_every
        self._on_passages = on_passages
        self._embedder = embedder
        self._pending = 0
        self._texts: list[str] = []
        """Of pending passages without a vector."""
        self._vectors: list[Floats] = []
        self._writer: Any = open_storage(folder, creates=True).writer(heap_size=_WRITER_BYTES, num_threads=1)
        # A build that was killed between a commit and its manifest: that commit is made again.
        self._writer.delete_documents_by_term("commit", manifest.commits)

    def run(
        self, sources: Sequence[SourceFile], *, roots: Sequence[Path], read_page: ReadPage, read_rows: ReadRows
    ) -> BuiltCorpus:
        dropped = self._drop_missing(sources, roots)
        read = 0
        skipped = {}
        for path, name in sources:
            file = self._file_to_read(path)
            if file is not None:
                read += 1
                problem = self._add_file((path, name), file, read_page, read_rows)
                if problem:
                    skipped[name] = problem
        if read or dropped or not self._manifest.is_complete:
            self._commit(is_complete=True)
            if self._embedder is not None:
                write_cells(self._folder, rows=self._manifest.rows, dimension=self._embedder.dimension)
        self._writer.wait_merging_threads()
        if not self._manifest.passages:
            first = f" {next(iter(skipped))}: {next(iter(skipped.values()))}" if skipped else ""
            given = ", ".join(map(str, roots))
            raise FileFormatError(f"no document could be read from {given}. Give files or folders of documents.{first}")
        return BuiltCorpus(self._manifest.passages, len(self._files), read, dropped, skipped)

    def _file_to_read(self, path: Path) -> IndexedFile | None:
        """How far a file is read; None where all of it is in the index."""
        stat = path.stat()
        known = self._files.get(str(path))
        if known is not None and known.is_done and (known.size, known.changed) == (stat.st_size, stat.st_mtime_ns):
            return None
        content = sha256(path)
        if known is not None and known.sha256 == content:
            file = known.model_copy(update={"size": stat.st_size, "changed": stat.st_mtime_ns})
        else:
            self._forget(str(path))
            number = self._next_number
            file = IndexedFile(size=stat.st_size, changed=stat.st_mtime_ns, sha256=content, number=number)
            self._next_number += 1
        self._files[str(path)] = file
        return None if file.is_done else file

    def _add_file(self, source: SourceFile, file: IndexedFile, read_page: ReadPage, read_rows: ReadRows) -> str:
        """Add what is not yet in the index of a file; returns a sentence about what could not be read."""
        first_problem = ""
        path = str(source[0])
        documents = skipped = 0
        for document, problem in read_documents_of(source, read_page, read_rows):
            if document is None:
                skipped += 1
                first_problem = first_problem or problem
                continue
            documents += 1
            if documents > file.documents:
                self._add(document, file.number)
                if self._pending >= self._commit_every:
                    self._files[path] = file.model_copy(update={"documents": documents})
                    self._commit()
        self._files[path] = file.model_copy(update={"documents": documents, "is_done": True})
        return f"{skipped:,} without a document; the first: {first_problem}" if skipped else ""

    def _add(self, document: Document, number: int) -> None:
        parts = split_passages(document.text, self._manifest.passage)
        for part, text in enumerate(parts):
            name = document.id if len(parts) == 1 else f"{document.id}#{part + 1}"
            passage = document.model_copy(update={"id": name, "text": text})
            row = self._manifest.rows + self._pending
            self._writer.add_document(stored_form(passage, row=row, file=number, commit=self._manifest.commits))
            self._pending += 1
            if self._embedder is not None:
                self._texts.append(f"{passage.title}\n{text}")
                if len(self._texts) == _EMBEDDED_AT_ONCE:
                    self._embed(self._embedder)
        self._on_passages(len(parts))

    def _embed(self, embedder: Embedder) -> None:
        self._vectors.append(embedder.embed(self._texts))
        self._texts = []

    def _drop_missing(self, sources: Sequence[SourceFile], roots: Sequence[Path]) -> int:
        present = {str(path) for path, _ in sources}
        below = tuple(root.resolve() for root in roots)
        gone = [
            name
            for name in self._files
            if name not in present and any(Path(name).is_relative_to(root) for root in below)
        ]
        for name in gone:
            self._forget(name)
        return len(gone)

    def _forget(self, name: str) -> None:
        """Remove the passages of a file."""
        file = self._files.pop(name, None)
        if file is not None:
            self._removed.append(file.number)

    def _commit(self, *, is_complete: bool = False) -> None:
        if self._removed:
            # Written first: a build that is killed here removes them again, and a file that comes back is read again.
            kept = {name: file for name, file in self._manifest.files.items() if file.number not in self._removed}
            self._write(files=kept, removed=self._removed, is_complete=False)
            for number in self._removed:
                self._writer.delete_documents_by_term("file", number)
            self._removed = []
        self._writer.commit()
        if self._embedder is not None:
            self._embed(self._embedder)
            write_vectors(self._folder, self._vectors, at=self._manifest.rows, dimension=self._embedder.dimension)
            self._vectors = []
        rows = self._manifest.rows + self._pending
        commits = self._manifest.commits + 1
        self._pending = 0
        self._write(
            files=dict(self._files),
            removed=[],
            next_number=self._next_number,
            rows=rows,
            commits=commits,
            passages=open_storage(self._folder).searcher().num_docs,
            is_complete=is_complete,
        )

    def _write(self, **values: object) -> None:
        self._manifest = self._manifest.model_copy(update=values)
        write_atomic(self._folder / INDEX_FILE, self._manifest.model_dump_json())
