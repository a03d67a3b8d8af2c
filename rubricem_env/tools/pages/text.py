"""Reads the text of HTML pages and PDF files.

`python -m rubricem_env.tools.pages.text` is one of the processes of PageReader.

Its parsers are native or slow, so it has a limit of memory, and whoever started it ends it after a time.
"""

import io
import json
import re
import resource
import sys
import time

from pypdf import PdfReader
from pypdf.errors import DependencyError, PyPdfError
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from rubricem_env.tools.pages.reader import MAX_TEXT, REQUEST, Unreadable

_MEMORY = 2 << 30
_PDF_SECONDS = 8.0
_MIN_SHARE = 0.1
_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r"\s*\n\s*")


def read_html(body: bytes, charset: str) -> tuple[str, str]:
    """The title and the main text of a page: no menu, no footer, no hidden element; a line for each block.

    Where hardly anything looks like main text, such as in a page of lists, the text is that of the whole page.
    """
    tree = HTMLTree.parse_from_bytes(body, charset)
    main = _tidy(extract_plain_text(tree, main_content=True, comments=True, alt_texts=False))
    whole = _tidy(extract_plain_text(tree, main_content=False, alt_texts=False, skip_elements=["nav", "footer"]))
    return _tidy(tree.title or "").replace("\n", " "), main if len(main) > _MIN_SHARE * len(whole) else whole


def read_pdf(body: bytes) -> tuple[str, str]:
    """The title and the text of a PDF file, as many pages as the time allows."""
    started = time.monotonic()
    file = PdfReader(io.BytesIO(body))
    if file.is_encrypted and not file.decrypt(""):
        raise Unreadable("the PDF is locked with a password; save a copy without one")
    pages: list[str] = []
    for page in file.pages:
        pages.append(page.extract_text())
        if time.monotonic() - started > _PDF_SECONDS or sum(map(len, pages)) > MAX_TEXT:
            break
    title = file.metadata.title if file.metadata is not None else None
    # A word that is broken at the end of a line is one word.
    return _tidy(title or "").replace("\n", " "), _tidy(re.sub(r"(?<=[a-z])-\n(?=[a-z])", "", "\n".join(pages)))


def _tidy(text: str) -> str:
    return _BREAKS.sub("\n", _SPACES.sub(" ", text)).strip()[:MAX_TEXT]


def main() -> None:
    """Read pages from standard input until it ends."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    replies = sys.stdout
    sys.stdout = sys.stderr
    while header := sys.stdin.buffer.read(REQUEST.size):
        format, charset, size = REQUEST.unpack(header)
        body = sys.stdin.buffer.read(size)
        try:
            reply: object = read_pdf(body) if format == b"pdf\0" else read_html(body, charset.rstrip(b"\0").decode())
        except (Unreadable, DependencyError) as problem:
            reply = {"problem": str(problem)}
        except PyPdfError as cause:
            reply = {"problem": f"the PDF is damaged ({str(cause)[:100]}); open it and save it anew"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
