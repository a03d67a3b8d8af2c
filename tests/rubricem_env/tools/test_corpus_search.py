"""The offline backend: both tools over a small corpus, and the parameters of tools of other people."""

import json

import pytest

from rubricem_env.domain.errors import FileFormatError, ToolError
from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.tools.arguments import read_argument
from rubricem_env.tools.corpus_search import Corpus, Document, offline_toolbox
from rubricem_env.tools.spec import Parameter

PAGES = [
    Document(
        id=str(year), title=f"Fox {year}", url=f"https://a.example/{year}", text="The fox.", year=year, field="Biology"
    )
    for year in (2015, 2018, 2020, 2022)
]


async def titles(**parameters: str) -> list[str]:
    call = ToolCall(name="snippet_search", query="fox", parameters=tuple(sorted(parameters.items())))
    result = await offline_toolbox(Corpus(PAGES)).call(call)
    return [snippet.title for snippet in result.snippets]


@pytest.mark.parametrize(
    ("year", "found"),
    [
        ("2018", ["Fox 2018"]),
        ("2018-2020", ["Fox 2018", "Fox 2020"]),
        ("2020-", ["Fox 2020", "Fox 2022"]),
        ("-2018", ["Fox 2015", "Fox 2018"]),
        ("1999", []),
    ],
)
async def test_years_are_a_year_or_a_range_open_on_either_side(year, found):
    assert await titles(year=year, limit="10") == found


async def test_limit_and_field_narrow_the_results():
    assert len(await titles(limit="2")) == 2
    assert await titles(fieldsofstudy="biology, Medicine", limit="1") == ["Fox 2015"]
    assert await titles(fieldsofstudy="Law") == []


async def test_nothing_found_is_empty():
    result = await offline_toolbox(Corpus(PAGES)).call(ToolCall(name="google_search", query="submarine"))
    assert result.status is ToolStatus.EMPTY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "line 1 is not a document"),
        ('{"id":"1","title":"","url":"","text":""}\n' * 2, "occurs twice"),
        (
            '{"id":"1","title":"","url":"","text":"","date":"2020"}\n',
            r"line 1 .*at date.* A document has id, title, url and text, may have year and field, and nothing else\.",
        ),
        ("", r"corpus\.jsonl holds no document; write one a line, such as .*\"id\""),
        ("\n \n", "holds no document"),
    ],
)
def test_a_broken_corpus_is_named_with_its_line(tmp_path, text, message):
    path = tmp_path / "corpus.jsonl"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message):
        Corpus.from_jsonl(path)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_a_line_separator_of_unicode_stays_within_its_document(tmp_path, separator):
    path = tmp_path / "corpus.jsonl"
    text = f"Tall Fox is{separator}60 m wide."
    line = json.dumps({"id": "1", "title": "T", "url": "u", "text": text}, ensure_ascii=False)
    path.write_text(f"{line}\r\n\n", encoding="utf-8", newline="")
    (document,) = Corpus.from_jsonl(path).documents
    assert document.text == text


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        ("boolean", "Yes", True),
        ("number", "2.5", 2.5),
        ("integer", " 7 ", 7),
        ("json", "[1, 2]", [1, 2]),
        ("json", "plain words", "plain words"),
        ("string", "as it is", "as it is"),
    ],
)
def test_a_value_is_read_as_its_kind(kind, written, value):
    assert read_argument(written, Parameter(name="p", kind=kind)) == value


@pytest.mark.parametrize(
    ("parameter", "written", "sentence"),
    [
        (Parameter(name="p", kind="boolean"), "perhaps", "p is 'perhaps'; it is true or false."),
        (Parameter(name="p", kind="number"), "nan", "p is 'nan'; it is a number."),
        (Parameter(name="p", choices=("a", "b")), "c", "p is 'c'; it is one of a, b."),
    ],
)
def test_a_value_of_another_kind_gives_one_sentence(parameter, written, sentence):
    with pytest.raises(ToolError) as caught:
        read_argument(written, parameter)
    assert str(caught.value) == sentence
