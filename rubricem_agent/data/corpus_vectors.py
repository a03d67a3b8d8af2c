"""Searches an index of documents by meaning beside words: a vector for each passage, and both rankings fused.

`rubricem corpus build --embedder NAME` writes the vectors while it indexes, 16-bit numbers in the order of the
passages. Up to `EXACT` of them are compared one by one. More are searched by an index of faiss, which is made at the
end of a build and read through a memory map, so that it takes no more memory than its pages in use.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from rubricem_agent.memory.embed import Embedder, Floats
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.tools.corpus_index import CorpusIndex, reading_index
from rubricem_env.tools.corpus_search import Document

VECTORS_FILE = "vectors.f16"
CELLS_FILE = "vectors.faiss"
EXACT = 200_000
"""Passages whose vectors are all compared with that of a query."""
_CANDIDATES = 50
"""Taken at least from each ranking. A fused score is the sum of 1 / (60 + rank), by Cormack, Clarke and Büttcher."""
_RANK_OFFSET = 60
_SAMPLES = 64
"""Vectors for each cell from which the cells are learned."""
_PROBED = 32
"""Cells that a query looks into."""
_CHUNK = 50_000


def write_vectors(folder: Path, rows: Sequence[Floats], *, at: int, dimension: int) -> None:
    """Append vectors after the first `at`; what a killed build wrote beyond them is dropped."""
    with (folder / VECTORS_FILE).open("r+b" if at else "wb") as file:
        file.truncate(at * dimension * 2)
        file.seek(0, 2)
        for some in rows:
            file.write(some.astype(np.float16).tobytes())


def open_vectors(folder: Path, *, rows: int, dimension: int) -> np.ndarray:
    """The vectors of an index, mapped from disk.

    Raises:
        FileFormatError: they are missing or too few.
    """
    path = folder / VECTORS_FILE
    if not path.is_file() or path.stat().st_size < rows * dimension * 2:
        raise FileFormatError(f"{path} lacks vectors for {rows} passages. Build the index again in a new folder.")
    return np.memmap(path, dtype=np.float16, mode="r", shape=(rows, dimension))


def write_cells(folder: Path, *, rows: int, dimension: int, exact: int = EXACT) -> None:
    """Make the index of faiss where there are more than `exact` vectors: cells around centres, a byte for a number."""
    cells_path = folder / CELLS_FILE
    cells_path.unlink(missing_ok=True)
    if rows <= exact:
        return
    vectors = open_vectors(folder, rows=rows, dimension=dimension)
    number = 2 ** round(np.log2(rows**0.5))
    drawn = np.random.default_rng(0).choice(rows, size=min(rows, number * _SAMPLES), replace=False)
    cells: Any = faiss.index_factory(dimension, f"IVF{number},SQ8", faiss.METRIC_INNER_PRODUCT)
    cells.train(vectors[np.sort(drawn)].astype(np.float32))
    for start in range(0, rows, _CHUNK):
        cells.add(vectors[start : start + _CHUNK].astype(np.float32))
    cells.nprobe = min(_PROBED, number)
    written = cells_path.with_suffix(".new")
    faiss.write_index(cells, str(written))
    written.replace(cells_path)


class HybridIndex:
    """An index that is asked by words and by meaning. Read by any number of threads."""

    is_quick = False

    def __init__(self, words: CorpusIndex, folder: Path, embedder: Embedder) -> None:
        """Open the vectors of an index.

        Raises:
            FileFormatError: they are missing or too few, or of another embedder.
        """
        manifest = words.manifest
        if manifest.dimension != embedder.dimension:
            raise FileFormatError(
                f"the vectors of {folder} have {manifest.dimension} numbers; those of {embedder.name} have "
                f"{embedder.dimension}. Build the index again in a new folder."
            )
        self._words = words
        self._embedder = embedder
        self._cells: Any = None
        if (folder / CELLS_FILE).exists():
            with reading_index(folder, FileFormatError):
                self._cells = faiss.read_index(str(folder / CELLS_FILE), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        else:
            self._vectors = open_vectors(folder, rows=manifest.rows, dimension=embedder.dimension).astype(np.float32)

    def search(
        self, query: str, *, limit: int, years: tuple[int, int] | None = None, fields: frozenset[str] = frozenset()
    ) -> list[Document]:
        """As `DocumentSearch` says, except that a document found by meaning need not share a word with the query."""
        if not query.strip():
            return []
        number = max(_CANDIDATES, 4 * limit)
        by_words = self._words.ranked(query, limit=number, years=years, fields=fields)
        vectors = self._embedder.embed([query])
        while True:
            nearest = self._nearest(vectors, number)
            by_meaning = self._words.at_rows(nearest, years=years, fields=fields)
            if len(by_meaning) >= limit or len(nearest) < number:
                break
            # Passages of changed files are gone, and filters leave others out.
            number *= 4
        documents = dict(by_words) | by_meaning
        scores: dict[int, float] = dict.fromkeys(documents, 0.0)
        for ranking in ([row for row, _ in by_words], [row for row in nearest if row in by_meaning]):
            for rank, row in enumerate(ranking, start=1):
                scores[row] += 1 / (_RANK_OFFSET + rank)
        return [documents[row] for row in sorted(scores, key=lambda row: (-scores[row], row))[:limit]]

    def _nearest(self, asked: Floats, number: int) -> list[int]:
        """The rows of the vectors that are nearest to the query's, nearest first."""
        if self._cells is not None:
            return [int(row) for row in self._cells.search(asked, number)[1][0] if row >= 0]
        scores = self._vectors @ asked[0]
        some = np.argpartition(-scores, number - 1)[:number] if number < len(scores) else np.arange(len(scores))
        return [int(row) for row in some[np.lexsort((some, -scores[some]))]]
