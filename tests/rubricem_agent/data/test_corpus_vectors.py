"""Search by meaning beside words: what is found, what changes and kills leave, and the cells of a large index."""

import json

import numpy as np
import pytest

pytest.importorskip("tantivy", reason="needs the extra 'documents'")
pytest.importorskip("faiss", reason="needs the extra 'documents'")

from rubricem_agent.data import corpus_vectors
from rubricem_agent.data.corpus_build import build_index
from rubricem_agent.data.corpus_files import list_sources
from rubricem_agent.data.corpus_vectors import HybridIndex, open_vectors, write_cells, write_vectors
from rubricem_agent.memory.embed import HashingEmbedder, unit_rows
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.tools.corpus_index import INDEX_FILE, CorpusIndex


class Topics:
    """Knows that a car is an automobile: texts of one topic have the same vector."""

    name, dimension = "topics", 3

    def embed(self, texts):
        topics = ({"car", "automobile"}, {"river", "stream"})
        rows = [[float(bool(topic & set(text.lower().split()))) for topic in topics] + [0.1] for text in texts]
        return unit_rows(np.array(rows).reshape(len(texts), 3))


def write_rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def memo(number, text, **more):
    return {"id": f"m{number}", "title": f"Memo {number}", "url": "", "text": text, **more}


TOPICS = Topics()


def build(folder, *given, embedder=TOPICS, **options):
    files, _ = list_sources(given)
    return build_index(folder, files, roots=given, passage=600, read_page=None, embedder=embedder, **options)


def found(folder, query, limit=10, **filters):
    index = HybridIndex(CorpusIndex(folder), folder, Topics())
    return [document.text for document in index.search(query, limit=limit, **filters)]


def test_a_passage_is_found_by_its_meaning_and_one_by_its_words(tmp_path):
    rows = [memo(1, "a stream"), memo(2, "an automobile"), memo(3, "the word car alone"), memo(4, "nothing of it")]
    build(tmp_path / "index", write_rows(tmp_path / "rows.jsonl", *rows))
    assert found(tmp_path / "index", "car", limit=2) == ["the word car alone", "an automobile"]
    assert [each.text for each in CorpusIndex(tmp_path / "index").search("car", limit=2)] == ["the word car alone"]
    assert found(tmp_path / "index", " ") == []


def test_filters_hold_for_what_is_found_by_meaning(tmp_path):
    rows = [memo(n, f"automobile {n}", year=2000 + n, field="Law" if n % 2 else "Art") for n in range(80)]
    build(tmp_path / "index", write_rows(tmp_path / "rows.jsonl", *rows))
    assert found(tmp_path / "index", "car", years=(2079, 2090), fields=frozenset({"law"})) == ["automobile 79"]


def test_passages_of_changed_files_are_not_found_again(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", *(memo(n, f"old automobile {n}") for n in range(60)))
    build(tmp_path / "index", path)
    build(tmp_path / "index", write_rows(path, memo(1, "new automobile")))
    assert found(tmp_path / "index", "car") == ["new automobile"]


def test_what_a_killed_build_wrote_beyond_its_manifest_is_dropped(tmp_path):
    class Killed(Exception):
        pass

    def stop(rows):
        seen.append(rows)
        if len(seen) == 5:
            raise Killed

    seen = []
    path = write_rows(tmp_path / "rows.jsonl", *(memo(n, "a stream" if n % 2 else "a car") for n in range(8)))
    with pytest.raises(Killed):
        build(tmp_path / "index", path, on_passages=stop, commit_every=3)
    with (tmp_path / "index" / corpus_vectors.VECTORS_FILE).open("ab") as file:
        file.write(b"half a vector")
    build(tmp_path / "index", path, commit_every=3)
    assert len(found(tmp_path / "index", "automobile", limit=4)) == 4
    vectors = open_vectors(tmp_path / "index", rows=8, dimension=3)
    np.testing.assert_allclose(vectors, Topics().embed(["a stream" if n % 2 else "a car" for n in range(8)]), atol=1e-3)


def test_an_index_keeps_to_its_embedder(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", memo(1, "a car"))
    build(tmp_path / "index", path)
    with pytest.raises(
        ConfigError, match=r"has vectors of topics; you asked for no vectors\. Give the same --embedder"
    ):
        build(tmp_path / "index", path, embedder=None)
    with pytest.raises(FileFormatError, match=r"have 3 numbers; those of hashing-512 have 512"):
        HybridIndex(CorpusIndex(tmp_path / "index"), tmp_path / "index", HashingEmbedder())
    (tmp_path / "index" / corpus_vectors.VECTORS_FILE).write_bytes(b"")
    with pytest.raises(FileFormatError, match="lacks vectors for 1 passages"):
        found(tmp_path / "index", "car")


def test_the_hash_of_an_index_tells_how_it_is_searched(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", memo(1, "a car"))
    hashes = []
    for name, embedder in {"words": None, "again": None, "topics": TOPICS, "hashing": HashingEmbedder()}.items():
        build(tmp_path / name, path, embedder=embedder)
        hashes.append(CorpusIndex(tmp_path / name).manifest.sha256)
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3


def test_an_index_of_another_format_is_refused(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", memo(1, "a car"))
    build(tmp_path / "index", path, embedder=None)
    manifest = tmp_path / "index" / INDEX_FILE
    manifest.write_text(manifest.read_text().replace('"format":2', '"format":1'))
    with pytest.raises(
        FileFormatError, match=r"has the format 1; this release reads 2\. Build it again in a new folder"
    ):
        CorpusIndex(tmp_path / "index")
    with pytest.raises(FileFormatError, match="has the format 1"):
        build(tmp_path / "index", path, embedder=None)


def test_cells_find_nearly_what_comparing_all_finds(tmp_path):
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((40, 16))
    rows = unit_rows(centres[generator.integers(40, size=3_000)] + 0.3 * generator.standard_normal((3_000, 16)))
    write_vectors(tmp_path, [rows], at=0, dimension=16)
    write_cells(tmp_path, rows=3_000, dimension=16, exact=1_000)
    cells = corpus_vectors.faiss.read_index(str(tmp_path / corpus_vectors.CELLS_FILE))
    nearest = cells.search(rows[:200], 10)[1]
    exact = np.argsort(-(rows[:200] @ rows.T), axis=1)[:, :10]
    shared = [len(set(some) & set(all)) / 10 for some, all in zip(nearest, exact, strict=True)]
    assert np.mean(shared) > 0.8
    write_cells(tmp_path, rows=3_000, dimension=16)
    assert not (tmp_path / corpus_vectors.CELLS_FILE).exists()


def test_a_large_index_is_searched_by_its_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_vectors.write_cells, "__kwdefaults__", {"exact": 100})
    rows = [memo(n, f"{['a stream', 'an automobile', 'none'][n % 3]} {n}") for n in range(600)]
    build(tmp_path / "index", write_rows(tmp_path / "rows.jsonl", *rows))
    assert (tmp_path / "index" / corpus_vectors.CELLS_FILE).exists()
    texts = found(tmp_path / "index", "car", limit=5)
    assert len(texts) == 5
    assert all("automobile" in text for text in texts)
