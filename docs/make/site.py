"""What the site does that Markdown does not: code that a page names becomes a page, figures and equations are inlined.

For language models the site has `llms.txt` (made by llms.py) and every page as Markdown.

It is a hook of MkDocs (ci/lanes/docs/mkdocs.yml). The pages read the same in a repository browser, which knows the
links to files, the images, and the notation of the equations.
"""

import html
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")
FIGURE = re.compile(r"!\[([^\]]*)\]\(([^)]+\.svg)\)")
INLINE_MATH = re.compile(r"\$`([^`]+)`\$")
FENCED = re.compile(r"(^```[^\n]*\n.*?^```[ ]*$)", re.MULTILINE | re.DOTALL)
MATH = "```math\n"


def on_files(files, config):
    """Add a page for every file outside the documents that a page links to."""
    docs = Path(config["docs_dir"])
    wanted = set()
    for page in files.documentation_pages():
        text = FENCED.sub("", (docs / page.src_uri).read_text(encoding="utf-8"))
        targets = (outside(docs, page.src_uri, target) for _, target, _ in LINK.findall(text))
        wanted |= {target for target in targets if target is not None}
    pages = [File.generated(config, f"source/{path}.md", content=source_page(path)) for path in sorted(wanted)]
    return Files([*files, *pages])


def on_page_markdown(markdown, page, config, files):
    """Rewrite links to code, and put figures and equations into the page."""
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    docs = Path(config["docs_dir"])
    here = posixpath.dirname(uri)

    def link(match):
        text, target = match[1], match[2]
        path = outside(docs, uri, target)
        if path is None:
            is_folder = (docs / here / target).is_dir()
            return text if is_folder else match[0]
        line = line_of(path, text.strip("`"))
        return f"[{text}]({posixpath.relpath(f'source/{path}.md', here or '.')}{f'#L-{line}' if line else ''})"

    def inline_figure(match):
        svg = (docs / here / match[2]).read_text(encoding="utf-8")
        return f'<figure class="drawn" role="img" aria-label="{html.escape(match[1])}">\n{svg.strip()}\n</figure>'

    parts = FENCED.split(markdown)
    for index, part in enumerate(parts):
        if part.startswith(MATH):
            parts[index] = convert(part.removeprefix(MATH).removesuffix("```").strip(), display="block")
        elif index % 2 == 0:
            text = FIGURE.sub(inline_figure, LINK.sub(link, part))
            # In a span: a paragraph that begins with <math> would be taken for a block of HTML.
            parts[index] = INLINE_MATH.sub(lambda match: f"<span>{convert(match[1], display='inline')}</span>", text)
    return "".join(parts)


def on_nav(nav, config, files):
    """Remember the pages of the menu."""
    config["extra"]["pages"] = nav.pages
    return nav


def on_post_build(config):
    """Write beside each page its Markdown, to which `llms.txt` points."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for page in config["extra"]["pages"]:
        (site / page.file.src_uri).write_text((docs / page.file.src_uri).read_text(encoding="utf-8"), encoding="utf-8")


def outside(docs: Path, uri: str, target: str) -> str | None:
    """The file in the repository that a link names, unless it lies among the pages."""
    path = (docs / posixpath.dirname(uri) / target).resolve()
    is_page = path.is_relative_to(docs) and path.suffix == ".md"
    return None if is_page or not path.is_file() or path.suffix == ".svg" else path.relative_to(ROOT).as_posix()


def line_of(path: str, name: str) -> int | None:
    """Where a class, function or constant of that name begins, so that its link goes there."""
    last = name.split(".")[-1].removesuffix("()")
    if not last.isidentifier():
        return None
    begins = re.compile(rf"^\s*(?:async def|def|class) {last}\b|^{last}\b.*=")
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    return next((number for number, line in enumerate(lines, 1) if begins.match(line)), None)


def source_page(path: str) -> str:
    """A file as it is, with an anchor for each line."""
    text = (ROOT / path).read_text(encoding="utf-8")
    try:
        lexer = get_lexer_for_filename(path)
    except ClassNotFound:
        lexer = TextLexer()
    body = highlight(
        text, lexer, HtmlFormatter(lineanchors="L", anchorlinenos=True, wrapcode=True, cssclass="highlight")
    )
    return f"---\ntitle: {path}\nsearch:\n  exclude: true\n---\n\n# {path}\n\n{body}\n"
