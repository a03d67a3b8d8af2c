"""Makes docs/llms.txt, the list of all pages for language models: what each is about, in the order of the menu.

The menu is that of the site, in ci/lanes/docs/mkdocs.yml. `make docs-reference` runs it.
"""

import re
from pathlib import Path

import yaml

DOCS = Path(__file__).parents[1]
MENU = DOCS.parent / "ci" / "lanes" / "docs" / "mkdocs.yml"
PAGE = DOCS / "llms.txt"
FENCED = re.compile(r"(^```[^\n]*\n.*?^```[ ]*$)", re.MULTILINE | re.DOTALL)


def render() -> str:
    """The list."""
    site = yaml.load(MENU.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}", ""]
    for entry in site["nav"]:
        ((title, inside),) = entry.items()
        if isinstance(inside, str):
            lines.append(line_of(title, inside))
            continue
        lines += ["", f"## {title}", ""]
        lines += [line_of(*page) for listed in inside for page in listed.items()]
    return "\n".join(lines) + "\n"


def line_of(title: str, path: str) -> str:
    """A page's title and what it is about."""
    return f"- [{title}]({path}): {first_sentence((DOCS / path).read_text(encoding='utf-8'))}"


def first_sentence(text: str) -> str:
    """The first sentence of a page's prose, without links; lines of pointers ("Paper: ...") are skipped."""
    for paragraph in FENCED.sub("", text).split("\n\n"):
        if paragraph[:1].isalpha() or paragraph[:1] in '`*"':
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph.replace("\n", " "))
            if not words.startswith(("Paper:", "Details:", "```")):
                return re.split(r"(?<=[.:]) (?=[A-Z`])", words)[0].rstrip(":")
    return ""


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
