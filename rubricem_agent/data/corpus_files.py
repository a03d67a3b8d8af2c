"""Reads documents from files of many kinds, for the index of `rubricem corpus build`.

Text, Markdown, HTML and PDF files are one document each. JSON lines, JSON arrays and parquet tables have one in each
row: our own form, BrowseComp-Plus's (docid, text, url), or a title and a text by their usual names. A dump of a
Wikipedia is read as it is published.
"""

import bz2
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal
from urllib.parse import quote
from xml.etree.ElementTree import ParseError, XMLPullParser

from pydantic import ValidationError

from rubricem_agent.data.question_files import SourceRow, stream_rows
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import first_problem, refuse_larger_than_memory
from rubricem_env.tools.corpus_index import INDEX_FILE
from rubricem_env.tools.corpus_search import Document

TEXT_FILES = (".txt", ".md", ".markdown", ".rst")
HTML_FILES = (".html", ".htm")
PDF_FILES = (".pdf",)
ROW_FILES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".parquet")
DUMP_FILES = (".xml", ".xml.bz2")
KINDS = (*TEXT_FILES, *HTML_FILES, *PDF_FILES, *ROW_FILES, *DUMP_FILES)


SourceFile = tuple[Path, str]
"""A file with documents, and the name by which its documents are cited."""


def kind_of(path: Path) -> str:
    """The ending by which a file is read; empty for a file that cannot be."""
    lowered = path.name.casefold()
    return max((kind for kind in KINDS if lowered.endswith(kind)), key=len, default="")


def list_sources(given: Iterable[Path]) -> tuple[list[SourceFile], list[Path]]:
    """The files to read, in order of their names, and those in the folders that are of no known kind.

    A file in a folder is named by its path below the folder. Hidden files and the folders of indexes are passed over.

    Raises:
        FileFormatError: a path does not exist, a file that was named is of no known kind, or there is nothing to read.
    """
    sources: dict[Path, SourceFile] = {}
    passed: list[Path] = []
    for path in given:
        if not path.exists():
            raise FileFormatError(f"there is no file or folder {path}. Give the path of your documents.")
        if path.is_file() and not kind_of(path):
            raise FileFormatError(f"{path} cannot be read: its name ends with none of {', '.join(KINDS)}. Convert it.")
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if not file.is_file() or any(part.startswith(".") for part in file.parts[len(path.parts) :]):
                continue
            if path.is_dir() and _is_in_index(file, path):
                continue
            if kind_of(file):
                name = file.name if path.is_file() else file.relative_to(path).as_posix()
                sources.setdefault(file.resolve(), (file.resolve(), name))
            else:
                passed.append(file)
    if not sources:
        raise FileFormatError(f"there is no document in what was given; a file's name ends with {', '.join(KINDS)}.")
    return list(sources.values()), passed


def _is_in_index(file: Path, root: Path) -> bool:
    """Whether a folder of an index, at `root` or below it, has the file."""
    folders = [folder for folder in file.parents if folder.is_relative_to(root)]
    return any((folder / INDEX_FILE).is_file() for folder in folders)


ReadPage = Callable[[bytes, Literal["html", "pdf"]], tuple[str, str]]
"""The title and the text of an HTML or a PDF file."""
ReadRows = Callable[[Path], Iterator[SourceRow]]
FoundDocument = tuple[Document | None, str]
"""A document, or why there is none."""


def read_documents_of(
    source: SourceFile, read_page: ReadPage, read_rows: ReadRows = stream_rows
) -> Iterator[FoundDocument]:
    """The documents of a file, in its order.

    Raises:
        FileFormatError: the file as a whole cannot be read.
    """
    path, name = source
    kind = kind_of(path)
    if kind in ROW_FILES:
        for number, row, problem in read_rows(path):
            yield (None, f"row {number}: {problem}") if problem else _document_in(row, number, name)
    elif kind in DUMP_FILES:
        yield from ((page, "") for page in read_dump(path))
    else:
        yield _whole_file(source, kind, read_page)


def decoded(body: bytes) -> str:
    """The text of a file: UTF-8 or UTF-16 by its mark, else UTF-8, else Windows-1252.

    Raises:
        UnicodeDecodeError: it is none of these.
    """
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return body.decode("utf-16")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" in body:
            raise
        return body.decode("cp1252")


def _whole_file(source: SourceFile, kind: str, read_page: ReadPage) -> FoundDocument:
    path, name = source
    try:
        refuse_larger_than_memory(path)
        body = path.read_bytes()
    except OSError as cause:
        raise FileFormatError(f"cannot read {path}: {cause.strerror or cause}.") from cause
    title = ""
    text = ""
    if kind in TEXT_FILES:
        try:
            text = decoded(body)
        except UnicodeDecodeError:
            return None, "its text is in no encoding that can be told; save it as UTF-8"
        heading = re.match(r"\s*#+[^\S\n]+(.+)", text)
        title = heading[1].strip() if heading else ""
    else:
        try:
            title, text = read_page(body, "pdf" if kind in PDF_FILES else "html")
        except FileFormatError as problem:
            return None, str(problem)
    if not text.strip():
        return None, "it holds no text"
    return Document(id=name, title=title or path.stem, url=name, text=text.strip()), ""


_TEXT_NAMES = ("text", "contents", "content", "body", "passage", "wikipedia_text", "abstract")
_TITLE_NAMES = ("title", "name")
_ID_NAMES = ("id", "docid", "_id", "doc_id", "wikipedia_id")
_URL_NAMES = ("url", "link", "source_url")


def _document_in(row: object, number: int, name: str) -> FoundDocument:
    """The document of a row; the rows of BrowseComp-Plus have their title in the first lines of the text."""
    if not isinstance(row, dict):
        return None, f"row {number} is a JSON {type(row).__name__}, and no object"
    text = _named(row, _TEXT_NAMES)
    if not text.strip():
        return None, f"row {number} has no text; a row has one of {', '.join(_TEXT_NAMES)}"
    title = _named(row, _TITLE_NAMES)
    text = text.strip()
    if not title:
        front = re.match(r"---\n(?:.*\n)*?title:[^\S\n]*(.+)\n(?:.*\n)*?---\n", text)
        if front:
            title = front[1].strip()
            text = text[front.end() :].strip() or text
        else:
            title = text.split("\n", 1)[0][:120]
    year = row.get("year")
    field = row.get("field")
    try:
        document = Document(
            id=_named(row, _ID_NAMES) or f"{name}#{number}",
            title=title,
            url=_named(row, _URL_NAMES) or f"{name}#{number}",
            text=text,
            year=year if isinstance(year, int) and not isinstance(year, bool) else None,
            field=field if isinstance(field, str) else "",
        )
    except ValidationError as cause:
        return None, f"row {number}: {first_problem(cause)}"
    return document, ""


def _named(row: dict[str, Any], names: tuple[str, ...]) -> str:
    value = next((row[name] for name in names if row.get(name) not in (None, "")), "")
    return str(value) if isinstance(value, str | int) else ""


_CHUNK = 1 << 20
_HIDDEN = re.compile(
    r"<!--.*?-->|<ref[^>/]*/>|<(ref|math|gallery|timeline|score)\b[^>]*>.*?</\1>", re.DOTALL | re.IGNORECASE
)
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}|\{\|[^{}]*?\|\}", re.DOTALL)
_FILE_LINK = re.compile(r"\[\[[^\[\]:|]{2,20}:(?:[^\[\]]|\[\[[^\[\]]*\]\])*\]\]")
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_WEB_LINK = re.compile(r"\[https?://[^\s\]]*\s*([^\]]*)\]")
_MARKS = re.compile(r"'{2,}|<[^<>]{1,200}>|^=+\s*(.*?)\s*=+\s*$|^[*#:;]+\s*|__[A-Z]+__", re.MULTILINE)
_NESTED = 12
"""How deep templates are taken away from within."""


def read_dump(path: Path) -> Iterator[Document]:
    """The articles of a Wikipedia's XML dump, without redirects, and without talk and other pages beside articles.

    Raises:
        FileFormatError: it cannot be read, is cut off, or is no such dump.
    """
    try:
        with path.open("rb") as plain:
            file: Any = bz2.BZ2File(plain) if path.suffix.casefold() == ".bz2" else plain
            yield from _articles(file)
    except (OSError, EOFError, ParseError) as cause:
        raise FileFormatError(f"cannot read the dump {path}: {cause}. Was the file cut off?") from cause


def _articles(file: BinaryIO) -> Iterator[Document]:
    parser: Any = XMLPullParser(("start", "end"))
    base = "https://en.wikipedia.org/wiki/"
    root = None
    while chunk := file.read(_CHUNK):
        parser.feed(chunk)
        for event, element in parser.read_events():
            root = element if root is None else root
            tag = element.tag.rpartition("}")[2]
            if event == "start":
                continue
            if tag == "base" and element.text and element.text.startswith("http"):
                base = element.text.rpartition("/")[0] + "/"
            elif tag == "page":
                parts = {part.tag.rpartition("}")[2]: part for part in element.iter()}
                # What was read is let go: a dump is far larger than the memory.
                root.clear()
                is_article = "redirect" not in parts and parts["ns"].text == "0"
                if is_article and (text := plain_wikitext(parts["text"].text or "")):
                    number = next(part.text for part in element if part.tag.rpartition("}")[2] == "id")
                    title = parts["title"].text or ""
                    url = base + quote(title.replace(" ", "_"))
                    yield Document(id=number or title, title=title, url=url, text=text)
    parser.close()


def plain_wikitext(text: str) -> str:
    """The sentences of an article's source: no templates, tables, references, files or markup."""
    text = _HIDDEN.sub("", text)
    for _ in range(_NESTED):
        text, count = _TEMPLATE.subn("", text)
        if not count:
            break
    text = _LINK.sub(r"\1", _FILE_LINK.sub("", text))
    text = _MARKS.sub(lambda match: match[1] or "", _WEB_LINK.sub(r"\1", text))
    text = text.replace("&nbsp;", " ").replace("&ndash;", "\u2013")
    return re.sub(r"\n\s*\n+", "\n", re.sub(r"[^\S\n]+", " ", text)).strip()
