"""Documents from files of each kind."""

import bz2
import gzip
import json

import pytest

from rubricem_agent.data.corpus_files import decoded, list_sources, plain_wikitext, read_documents_of
from rubricem_agent.wiring.training_questions import read_rows
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.tools.corpus_index import INDEX_FILE


def documents(path, read_page=None):
    return list(read_documents_of((path, path.name), read_page, read_rows))


def only(path, read_page=None):
    ((document, problem),) = documents(path, read_page)
    assert not problem
    return document


def test_a_text_file_is_named_by_its_heading_and_cited_by_its_path(tmp_path):
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "x.md").write_text("hidden")
    (folder / "deep" / "fox.md").write_text("# Tall Fox\n\nIt is 71 m wide.")
    (folder / "plain.txt").write_text("no heading")
    (folder / "a.png").write_text("")
    sources, passed = list_sources([folder])
    assert [name for _, name in sources] == ["deep/fox.md", "plain.txt"]
    assert [path.name for path in passed] == ["a.png"]
    ((document, _),) = read_documents_of(sources[0], None)
    assert (document.title, document.url) == ("Tall Fox", "deep/fox.md")
    ((document, _),) = read_documents_of(sources[1], None)
    assert (document.title, document.text) == ("plain", "no heading")


def test_a_page_that_cannot_be_read_is_one_problem(tmp_path):
    (tmp_path / "x.pdf").write_bytes(b"%PDF")

    def fails(body, format):
        raise FileFormatError(f"its {format} is broken")

    assert documents(tmp_path / "x.pdf", fails) == [(None, "its pdf is broken")]
    assert documents(tmp_path / "x.pdf", lambda *_: ("T", "  ")) == [(None, "it holds no text")]
    assert only(tmp_path / "x.pdf", lambda *_: ("", "words")).title == "x"


def test_rows_of_browsecomp_plus_have_their_title_in_the_front_matter(tmp_path):
    row = {
        "docid": "5411",
        "text": "---\ntitle: A Tall Fox\nauthor: none\n---\nIt is wide.",
        "url": "https://x.example",
    }
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps(row))
    document = only(path)
    assert (document.id, document.title, document.text) == ("5411", "A Tall Fox", "It is wide.")
    assert document.url == "https://x.example"


def test_rows_without_names_are_cited_by_file_and_number(tmp_path):
    path = tmp_path / "passages.jsonl.gz"
    rows = [{"contents": "First line\nand more"}, {"title": "T", "text": " "}, 5]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode() + b"\n{"))
    (found, _), *problems = documents(path)
    assert (found.id, found.title, found.url) == ("passages.jsonl.gz#1", "First line", "passages.jsonl.gz#1")
    assert [problem.split(";")[0] for _, problem in problems] == [
        "row 2 has no text",
        "row 3 is a JSON int, and no object",
        "row 4: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ]


def test_a_parquet_table_is_read_row_by_row(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra 'documents'")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = arrow.table({"docid": ["1", "2"], "url": ["https://a", "https://b"], "text": ["Owl.", "Fox."]})
    parquet.write_table(table, tmp_path / "t.parquet")
    assert [found.text for found, _ in documents(tmp_path / "t.parquet")] == ["Owl.", "Fox."]


def test_a_gzip_that_is_cut_off_is_one_sentence(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "owl"}\n' * 1000)[:-20])
    with pytest.raises(FileFormatError, match="cannot read the data set"):
        documents(path)


DUMP = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="de">
  <siteinfo><sitename>Wikipedia</sitename><base>https://de.wikipedia.org/wiki/Hauptseite</base></siteinfo>
  <page><title>Fuchs und Eule</title><ns>0</ns><id>7</id><revision><id>70</id>
    <text xml:space="preserve">{{Infobox|a={{b}}}}'''Fuchs''' ist ein [[Tier|tier]].&lt;ref name="x"&gt;q&lt;/ref&gt;
== Form ==
* [[Datei:a.jpg|mini|ein [[Bild]]]]Er ist [https://x.example rot].</text></revision></page>
  <page><title>Alt</title><ns>0</ns><id>8</id><redirect title="Fuchs" />
    <revision><text>#WEITERLEITUNG</text></revision></page>
  <page><title>Diskussion:Fuchs</title><ns>1</ns><id>9</id><revision><text>no article</text></revision></page>
</mediawiki>"""


@pytest.mark.parametrize("name", ["dump.xml", "dump.xml.bz2"])
def test_a_wikipedia_dump_gives_its_articles_in_plain_sentences(tmp_path, name):
    content = DUMP.encode()
    (tmp_path / name).write_bytes(bz2.compress(content) if name.endswith("bz2") else content)
    document = only(tmp_path / name)
    assert (document.id, document.title) == ("7", "Fuchs und Eule")
    assert document.url == "https://de.wikipedia.org/wiki/Fuchs_und_Eule"
    assert document.text == "Fuchs ist ein tier.\nForm\nEr ist rot."


def test_a_dump_that_is_cut_off_is_one_sentence(tmp_path):
    (tmp_path / "dump.xml").write_text(DUMP[:500])
    with pytest.raises(FileFormatError, match=r"cannot read the dump .*Was the file cut off"):
        documents(tmp_path / "dump.xml")


def test_markup_that_never_closes_ends():
    assert plain_wikitext("{{" * 50_000 + "a [[b") == "{{" * 50_000 + "a [[b"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_the_encoding_of_a_text_is_told(encoding):
    assert decoded("Straße – 60 m".encode(encoding)) == "Straße – 60 m"


def test_the_folder_of_an_index_is_no_source(tmp_path):
    (tmp_path / "a.md").write_text("Tall Fox")
    index = tmp_path / "index"
    index.mkdir()
    (index / INDEX_FILE).write_text("{}")
    (index / "meta.json").write_text("[]")
    sources, passed = list_sources([tmp_path])
    assert ([name for _, name in sources], passed) == (["a.md"], [])
