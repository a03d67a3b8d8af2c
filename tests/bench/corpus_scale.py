"""Builds an index of synthetic passages and asks it: time, size, memory, latency, and recall against exact BM25.

    python -m tests.bench.corpus_scale --passages 1000000 [--queries 2000] [--folder DIR] [--json FILE]
    python -m tests.bench.corpus_scale --vectors 1000000        # search by meaning: the cells against all vectors

The passages have 100 words each, drawn by Zipf's law with exponent 1.05 from a million words, in which long texts
resemble English; they mean nothing. A query is four to eight words of one passage, drawn like its other words, so
frequent words stand in queries as they do in questions. A query's time is its least of three. With --folder the index
is kept there, and found there by the next run.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faiss
import numpy as np

from rubricem_agent.data.corpus_build import build_index
from rubricem_agent.data.corpus_vectors import CELLS_FILE, open_vectors, write_cells, write_vectors
from rubricem_agent.memory.embed import unit_rows
from rubricem_env.tools.corpus_index import CorpusIndex
from rubricem_env.tools.corpus_search import Corpus, Document

WORDS, VOCABULARY, EXPONENT, CHUNK = 100, 1_000_000, 1.05, 20_000
EXACT = 20_000
"""Passages of the smaller index whose results are held against the corpus in memory."""


def draw_passages(number: int, seed: int) -> Iterator[np.ndarray]:
    """Word numbers, (passages, words), a chunk at a time."""
    generator = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, VOCABULARY + 1) ** EXPONENT
    cumulative = np.cumsum(weights / weights.sum())
    for start in range(0, number, CHUNK):
        yield np.searchsorted(cumulative, generator.random((min(CHUNK, number - start), WORDS)))


def write_rows(path: Path, number: int, seed: int) -> list[str]:
    """Write the passages as JSON lines; returns queries drawn from the first chunk."""
    generator, queries = np.random.default_rng(seed + 1), []
    with path.open("w", encoding="utf-8") as file:
        at = 0
        for chunk in draw_passages(number, seed):
            for row in chunk:
                text = " ".join(f"w{word:x}" for word in row)
                file.write(f'{{"id": "p{at}", "title": "P{at}", "url": "", "text": "{text}"}}\n')
                at += 1
                if len(queries) < 5_000:
                    words = generator.choice(row, size=int(generator.integers(4, 9)), replace=False)
                    queries.append(" ".join(f"w{word:x}" for word in words))
    return queries


def build(folder: Path, rows: Path) -> float:
    started = time.perf_counter()
    build_index(folder, [(rows, rows.name)], roots=[rows], passage=2_000, read_page=no_pages)
    return time.perf_counter() - started


def no_pages(body: bytes, format: str) -> tuple[str, str]:
    raise AssertionError(format)


def measure(number: int, queries: int, seed: int, kept: Path | None = None) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        folder = kept or root / "index"
        seconds = 0.0
        if not folder.exists():
            write_rows(root / "rows.jsonl", number, seed)
            seconds = build(folder, root / "rows.jsonl")
            (root / "rows.jsonl").unlink()
        # The queries are drawn from the first chunk.
        asked = write_rows(root / "first.jsonl", min(number, CHUNK), seed)[:queries]
        built_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        size = sum(file.stat().st_size for file in folder.iterdir())
        index = CorpusIndex(folder)
        times = [min(seconds_of(index, query) for _ in range(3)) for query in asked]
        together = [seconds_together(index, asked[start : start + 100]) for start in range(0, min(500, queries), 100)]
        few = min(number, EXACT)
        exact_asked = write_rows(root / "few.jsonl", few, seed)[:300]
        build(root / "few", root / "few.jsonl")
        small, exact = CorpusIndex(root / "few"), Corpus(read(root / "few.jsonl"))
        shares = []
        for query in exact_asked:
            wanted = {document.id for document in exact.search(query, limit=10)}
            found = {document.id for document in small.search(query, limit=10)}
            shares.append(len(wanted & found) / len(wanted))
    milliseconds = np.array(times) * 1_000
    return {
        "passages": number,
        "build_seconds": round(seconds, 1),
        "index_gib": round(size / 2**30, 3),
        "peak_gib_of_building": round(built_gib, 2),
        "p50_ms": round(float(np.percentile(milliseconds, 50)), 2),
        "p99_ms": round(float(np.percentile(milliseconds, 99)), 2),
        "hundred_at_once_ms": round(float(np.median(together)) * 1_000, 1),
        "recall_of_10_against_exact": round(float(np.mean(shares)), 4),
    }


def seconds_of(index: CorpusIndex, query: str) -> float:
    started = time.perf_counter()
    index.search(query, limit=3)
    return time.perf_counter() - started


def seconds_together(index: CorpusIndex, queries: list[str]) -> float:
    """Until the last of the queries is answered, all asked at once of two threads."""
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda query: index.search(query, limit=3), queries))
    return time.perf_counter() - started


def measure_vectors(number: int, queries: int, seed: int, *, dimension: int = 384) -> dict[str, float]:
    """Random vectors around 2,000 centres; queries are passages moved half as far as the centres spread them."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((2_000, dimension)).astype(np.float32)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for start in range(0, number, CHUNK):
            near = centres[generator.integers(len(centres), size=min(CHUNK, number - start))]
            rows = unit_rows(near + 0.7 * generator.standard_normal(near.shape, dtype=np.float32))
            write_vectors(folder, [rows], at=start, dimension=dimension)
        started = time.perf_counter()
        write_cells(folder, rows=number, dimension=dimension, exact=0)
        seconds = time.perf_counter() - started
        vectors = open_vectors(folder, rows=number, dimension=dimension)
        asked = vectors[np.sort(generator.choice(number, size=queries, replace=False))].astype(np.float32)
        asked = unit_rows(asked + 0.35 / dimension**0.5 * generator.standard_normal(asked.shape))
        best = np.full((queries, 10), -np.inf)
        exact = np.zeros((queries, 10), dtype=int)
        for start in range(0, number, CHUNK):
            scores = np.hstack([best, asked @ vectors[start : start + CHUNK].astype(np.float32).T])
            rows = np.hstack(
                [
                    exact,
                    np.broadcast_to(np.arange(start, start + scores.shape[1] - 10), (queries, scores.shape[1] - 10)),
                ]
            )
            top = np.argpartition(-scores, 10, axis=1)[:, :10]
            best, exact = np.take_along_axis(scores, top, 1), np.take_along_axis(rows, top, 1)
        cells = faiss.read_index(str(folder / CELLS_FILE), faiss.IO_FLAG_MMAP)
        times, shares = [], []
        for one, wanted in zip(asked, exact, strict=True):
            started = time.perf_counter()
            found = cells.search(one[None], 10)[1][0]
            times.append(time.perf_counter() - started)
            shares.append(len(set(found) & set(wanted)) / 10)
        size = (folder / CELLS_FILE).stat().st_size
    return {
        "vectors": number,
        "cells_seconds": round(seconds, 1),
        "cells_gib": round(size / 2**30, 3),
        "p50_ms": round(float(np.percentile(times, 50)) * 1_000, 2),
        "p99_ms": round(float(np.percentile(times, 99)) * 1_000, 2),
        "recall_of_10_against_all": round(float(np.mean(shares)), 4),
    }


def read(path: Path) -> list[Document]:
    return [Document.model_validate_json(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=200_000)
    parser.add_argument("--vectors", type=int, help="measure search by meaning instead, with so many vectors")
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the index is kept")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.vectors:
        found = measure_vectors(given.vectors, min(given.queries, 500), given.seed)
    else:
        found = measure(given.passages, given.queries, given.seed, given.folder)
    for name, value in found.items():
        sys.stdout.write(f"{name:28} {value:,}\n")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
