"""The index of a user's documents: what is found, what a kill leaves, what changes with the files."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tantivy", reason="needs the extra 'documents'")

from rubricem_agent.data.corpus_build import build_index
from rubricem_agent.data.corpus_files import list_sources
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.tools import corpus_index
from rubricem_env.tools.corpus_index import CorpusIndex, read_manifest
from rubricem_env.tools.corpus_search import Corpus, Document


def no_pages(body, format):
    raise AssertionError("no page is read here")


def build(folder, *given, passage=600, **options):
    files, _ = list_sources(given)
    return build_index(folder, files, roots=given, passage=passage, read_page=no_pages, **options)


def write_rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def memo(number, text, **more):
    return {"id": f"m{number}", "title": f"Memo {number}", "url": f"https://x.example/{number}", "text": text, **more}


def ids(index, query, **given):
    return [document.id for document in index.search(query, limit=10, **given)]


def test_an_index_ranks_as_the_corpus_in_memory_does(tmp_path):
    words = ["red", "green", "blue", "owl", "fox", "river", "bridge", "wide", "tall", "deep"]
    texts = [" ".join(words[(row * step) % 10] for step in range(1, 8)) + f" number{row}" for row in range(60)]
    rows = [memo(row, text) for row, text in enumerate(texts)]
    build(tmp_path / "ix", write_rows(tmp_path / "rows.jsonl", *rows))
    index, corpus = CorpusIndex(tmp_path / "ix"), Corpus(Document.model_validate(row) for row in rows)
    for query in ("owl", "tall fox", "red red river", "number7 bridge", "nothing of this"):
        found = [document.id for document in index.search(query, limit=3)]
        assert found == [document.id for document in corpus.search(query, limit=3)]


def test_frequent_words_rank_what_the_rare_ones_find(tmp_path, monkeypatch):
    # The frequent word stands in 40 passages, each rare one in five, and m3 has the frequent word four times.
    texts = [
        f"owl {'red ' * (4 if row == 3 else 1)} {'fox' if row < 5 else 'hen' if row < 10 else ''}" for row in range(40)
    ]
    rows = [memo(row, text, year=2000 + row) for row, text in enumerate(texts)]
    build(tmp_path / "ix", write_rows(tmp_path / "rows.jsonl", *rows))
    index = CorpusIndex(tmp_path / "ix")
    whole = ids(index, "fox red")
    monkeypatch.setattr(corpus_index, "_POSTINGS", 7)
    assert set(whole[:5]) == {f"m{row}" for row in range(5)}
    assert len(whole) == 10
    assert ids(index, "fox red") == whole[:5]
    assert ids(index, "fox red", years=(2004, 2007)) == ["m4"]
    assert ids(index, "fox red missing") == whole[:5]
    assert sorted(ids(index, "hen fox red"))[:1] == ["m0"]
    assert len(ids(index, "red owl")) == 10


def test_pairs_of_words_find_nearly_what_all_words_would(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    # By Zipf's law: w1 stands in every passage, w20 in a quarter, w119 in about 100.
    texts = [" ".join(f"w{word}" for word in rng.zipf(1.3, 60) if word < 400) for _ in range(4_000)]
    build(tmp_path / "ix", write_rows(tmp_path / "rows.jsonl", *(memo(row, text) for row, text in enumerate(texts))))
    index = CorpusIndex(tmp_path / "ix")
    queries = [" ".join(f"w{word}" for word in rng.permutation(120)[:5] + 1) + " w1" for _ in range(60)]
    whole = [index.search(query, limit=3) for query in queries]
    # Of five words, those in at most 800 passages together lead pairs; each by itself would find too many.
    monkeypatch.setattr(corpus_index, "_POSTINGS", 8_000)
    paired = [index.search(query, limit=3) for query in queries]
    assert {len(found) for found in paired} == {3}
    assert sum(found[0] == wanted[0] for found, wanted in zip(paired, whole, strict=True)) >= 48
    assert 126 <= sum(one in wanted for found, wanted in zip(paired, whole, strict=True) for one in found) < 180


def test_a_frequent_word_that_is_asked_for_many_times_is_counted_each_time(tmp_path, monkeypatch):
    texts = [f"owl {'fox ' if row < 2 else ''}{'red ' * (row + 1)}" for row in range(30)]
    build(tmp_path / "ix", write_rows(tmp_path / "rows.jsonl", *(memo(row, text) for row, text in enumerate(texts))))
    index = CorpusIndex(tmp_path / "ix")
    query = "fox" + " red" * 5_000
    whole = ids(index, query)
    monkeypatch.setattr(corpus_index, "_POSTINGS", 40)
    # One query within another for each word would end the process.
    assert ids(index, query) == whole


def test_nothing_in_a_query_is_an_operator(tmp_path):
    build(tmp_path / "ix", write_rows(tmp_path / "rows.jsonl", memo(1, "the owl or the fox"), memo(2, "title: bridge")))
    index = CorpusIndex(tmp_path / "ix")
    assert ids(index, 'owl AND NOT fox"') == ["m1"]
    assert ids(index, "-owl") == ["m1"]
    assert ids(index, "words:bridge file:0 [* TO *] ((") == ["m2"]
    assert ids(index, " ?! ") == []


def test_years_and_fields_filter_and_do_not_rank(tmp_path):
    rows = [
        memo(1, "owl", year=2010, field="Biology"),
        memo(2, "owl owl", year=2020, field="biology"),
        memo(3, "owl", year=2020, field="Law"),
        memo(4, "owl"),
    ]
    build(tmp_path / "ix", write_rows(tmp_path / "rows.jsonl", *rows))
    index = CorpusIndex(tmp_path / "ix")
    assert ids(index, "owl", years=(2015, 2025)) == ["m2", "m3"]
    assert ids(index, "owl", fields=frozenset({"biology"})) == ["m2", "m1"]
    assert ids(index, "owl", years=(2020, 2020), fields=frozenset({"law", "art"})) == ["m3"]


def test_a_script_without_spaces_is_found_by_part_of_a_sentence(tmp_path):
    rows = [memo(1, "高い狐の幅は七十一メートルです。"), memo(2, "川の深さは不明です。"), memo(3, "ＷＩＤＥ ﬁeld")]
    build(tmp_path / "ix", write_rows(tmp_path / "rows.jsonl", *rows))
    index = CorpusIndex(tmp_path / "ix")
    assert ids(index, "狐の幅")[0] == "m1"
    assert ids(index, "wide field") == ["m3"]


def test_long_documents_are_found_by_passage(tmp_path):
    text = "\n".join(f"Line {number} tells of nothing at all that matters here." for number in range(40))
    build(tmp_path / "ix", write_rows(tmp_path / "rows.jsonl", memo(1, text + "\nThe owl is red.")), passage=200)
    (found,) = CorpusIndex(tmp_path / "ix").search("owl", limit=3)
    assert found.text.endswith("The owl is red.")
    assert len(found.text) <= 200
    assert found.id.startswith("m1#")
    assert found.url == "https://x.example/1"


def test_the_same_build_again_reads_nothing(tmp_path):
    source = write_rows(tmp_path / "rows.jsonl", memo(1, "owl"))
    assert build(tmp_path / "ix", source).read == 1
    before = (tmp_path / "ix" / "rubricem_index.json").read_bytes()
    assert build(tmp_path / "ix", source).read == 0
    assert (tmp_path / "ix" / "rubricem_index.json").read_bytes() == before


def test_changed_files_are_read_again_and_gone_ones_dropped(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    write_rows(folder / "a.jsonl", memo(1, "owl"))
    write_rows(folder / "b.jsonl", memo(2, "owl fox"))
    write_rows(folder / "c.jsonl", memo(3, "fox"))
    build(tmp_path / "ix", folder)
    write_rows(folder / "a.jsonl", memo(1, "bridge"), memo(4, "owl"))
    (folder / "b.jsonl").unlink()
    (folder / "c.jsonl").touch()
    built = build(tmp_path / "ix", folder)
    assert (built.passages, built.files, built.read, built.dropped) == (3, 2, 1, 1)
    index = CorpusIndex(tmp_path / "ix")
    assert ids(index, "owl") == ["m4"]
    assert ids(index, "bridge fox") == ["m3", "m1"] or ids(index, "bridge fox") == ["m1", "m3"]


def test_another_folder_is_added_and_the_first_stays(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, number in ((first, 1), (second, 2)):
        folder.mkdir()
        write_rows(folder / "rows.jsonl", memo(number, "owl"))
    build(tmp_path / "ix", first)
    build(tmp_path / "ix", second)
    assert ids(CorpusIndex(tmp_path / "ix"), "owl") == ["m1", "m2"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", range(1, 11))
def test_a_build_that_is_killed_anywhere_ends_with_the_same_passages(tmp_path, monkeypatch, at):
    """Killed before or after each of the manifest's five writes: one before the old passages go, and one a commit."""
    folder = tmp_path / "docs"
    folder.mkdir()
    write_rows(folder / "a.jsonl", *(memo(number, f"owl w{number}") for number in range(25)))
    write_rows(folder / "b.jsonl", memo(99, "owl last"))
    build(tmp_path / "ix", folder, commit_every=10)
    write_rows(folder / "a.jsonl", *(memo(number, f"fox w{number}") for number in range(30)))
    real, count = Path.replace, 0

    def dies(path, target):
        nonlocal count
        count += 1
        if count * 2 - 1 == at:
            raise Killed
        real(path, target)
        if count * 2 == at:
            raise Killed

    monkeypatch.setattr(Path, "replace", dies)
    try:
        build(tmp_path / "ix", folder, commit_every=10)
    except Killed:
        if not read_manifest(tmp_path / "ix").is_complete:
            with pytest.raises(FileFormatError, match="not complete"):
                CorpusIndex(tmp_path / "ix")
    monkeypatch.undo()
    build(tmp_path / "ix", folder, commit_every=10)
    index = CorpusIndex(tmp_path / "ix")
    assert index.manifest.passages == 31
    assert len(index.search("fox", limit=100)) == 30
    assert ids(index, "owl") == ["m99"]
    assert sorted(document.id for document in index.search("fox", limit=100)) == sorted(f"m{n}" for n in range(30))


def test_a_process_that_is_killed_resumes_within_a_file(tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", *(memo(number, f"owl w{number}") for number in range(60)))
    program = (
        "import os, signal\nfrom pathlib import Path\n"
        "from rubricem_agent.data.corpus_build import build_index\n"
        "count = 0\n"
        "def seen(passages):\n    global count\n    count += passages\n"
        "    if count == 45: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"path = Path({str(rows)!r})\n"
        f"build_index(Path({str(tmp_path / 'ix')!r}), [(path, path.name)], roots=[path], passage=600,"
        " read_page=None, on_passages=seen, commit_every=10)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert read_manifest(tmp_path / "ix").files[str(rows)].documents == 40
    added = []
    build(tmp_path / "ix", rows, on_passages=added.append, commit_every=10)
    assert sum(added) == 20
    assert CorpusIndex(tmp_path / "ix").manifest.passages == 60


def test_two_indexes_over_the_same_files_have_one_hash(tmp_path):
    source = write_rows(tmp_path / "rows.jsonl", memo(1, "owl"))
    build(tmp_path / "one", source)
    build(tmp_path / "two", source)
    build(tmp_path / "other", source, passage=300)
    one, two, other = (CorpusIndex(tmp_path / name).manifest.sha256 for name in ("one", "two", "other"))
    assert one == two != other


def test_mistakes_are_one_sentence(tmp_path):
    source = write_rows(tmp_path / "rows.jsonl", memo(1, "owl"))
    with pytest.raises(FileFormatError, match="there is no file or folder"):
        build(tmp_path / "ix", tmp_path / "absent")
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(FileFormatError, match=r"no document could be read from .*empty\.txt\. Give files or"):
        build(tmp_path / "without", tmp_path / "empty.txt")
    (tmp_path / "empty.txt").unlink()
    (tmp_path / "picture.png").write_bytes(b"x")
    with pytest.raises(FileFormatError, match=r"picture.png cannot be read: its name ends with none of \.txt"):
        build(tmp_path / "ix", tmp_path / "picture.png")
    with pytest.raises(ConfigError, match=r"holds other files, such as picture.png\. Choose a new folder with -o"):
        build(tmp_path, source)
    build(tmp_path / "ix", source)
    with pytest.raises(ConfigError, match="has passages of 600 characters; you asked for 300"):
        build(tmp_path / "ix", source, passage=300)
    with pytest.raises(FileFormatError, match="there is no index in"):
        CorpusIndex(tmp_path / "nowhere")
    for part in (tmp_path / "ix").glob("*.store"):
        part.unlink()
    with pytest.raises(FileFormatError, match="Build it again in a new folder"):
        CorpusIndex(tmp_path / "ix")


def test_a_file_without_any_document_is_refused_with_the_reason(tmp_path):
    source = write_rows(tmp_path / "rows.jsonl", {"name": "x"}, [1])
    with pytest.raises(FileFormatError, match=r"rows.jsonl: 2 without a document; the first: row 1 has no text"):
        build(tmp_path / "ix", source)


def test_two_builds_of_one_folder_do_not_mix(tmp_path):
    source = write_rows(tmp_path / "rows.jsonl", memo(1, "owl"))
    folder: Path = tmp_path / "ix"
    with pytest.raises(ConfigError, match="being built by another process"):
        build(folder, source, on_passages=lambda _: build(folder, source))
