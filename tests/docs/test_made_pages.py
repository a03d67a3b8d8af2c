"""What is made from the code is as the code has it: configuration, commands, figures."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
MAKE = DOCS / "make"


def load(name: str):
    """A module of docs/make, which is no package."""
    spec = importlib.util.spec_from_file_location(name, MAKE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures():
    load("drawing")
    return load("figures")


@pytest.mark.parametrize("name", ["configuration", "commands", "versions"])
def test_a_made_page_is_what_the_code_gives(name):
    page = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    assert page == load(name).render(), "the code has changed since; run `make docs-reference`"


def test_the_tree_of_the_repository_is_what_the_modules_say():
    tree = load("tree")
    for page in tree.pages():
        assert page.read_text(encoding="utf-8") == tree.render(page), f"{page.name}: run `make docs-reference`"


def test_the_table_of_the_papers_evaluations_is_what_the_code_runs():
    evaluations = load("evaluations")
    assert evaluations.PAGE.read_text(encoding="utf-8") == evaluations.render(), "run `make docs-reference`"


def test_the_list_for_language_models_has_every_page_of_the_menu_and_what_it_is_about():
    llms = load("llms")
    made = llms.render()
    assert llms.PAGE.read_text(encoding="utf-8") == made, "run `make docs-reference`"
    listed = {path for path in re.findall(r"^- \[.*?\]\((.*?)\): .", made, re.MULTILINE)}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if "adapters/" not in str(path)}
    assert {page for page in pages - listed if not page.startswith("hubs/")} == set()


def test_a_long_page_begins_with_what_it_is_about():
    long = [path for path in DOCS.rglob("*.md") if len(path.read_text(encoding="utf-8").split()) > 1_500]
    without = [
        path.name
        for path in long
        if not re.search(r"\A# .*?\n\n(?:<!--.*?-->\n\n)?(?![#|>!-])\S.{20}", path.read_text(encoding="utf-8"))
    ]
    assert without == [], "a page of more than 1,500 words begins with a paragraph that says what it is about"


def test_every_figure_is_what_its_script_draws(figures):
    drawn = {f"{figure().name}.svg": figure().render() for figure in figures.FIGURES}
    committed = {path.name: path.read_text(encoding="utf-8") for path in figures.FOLDER.iterdir()}
    assert committed == drawn, "run `make docs-figures`"


def test_every_chart_is_what_its_data_give():
    charts = load("charts")
    for name, draw in charts.CHARTS.items():
        assert (charts.FOLDER / name).read_text(encoding="utf-8") == draw(), f"{name}: run `make docs-figures`"


def test_every_key_says_what_may_stand_there():
    page = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    assert not re.search(r"class '|typing\.|Annotated|Ellipsis", page)


def test_every_group_of_keys_that_is_linked_to_is_there():
    page = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^##+ (.+)$", page, re.MULTILINE)}
    linked = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert linked - headings == set()
    assert len(linked) > 10


def test_every_concept_has_its_figure():
    for page in (DOCS / "concepts").glob("*.md"):
        assert f"(figures/{page.stem}.svg)" in page.read_text(encoding="utf-8")


def test_every_page_of_the_site_can_be_reached():
    """From the site's navigation; pages that others add show up here."""
    listed = set(
        re.findall(
            r": ([\w/]+\.md)$", (DOCS.parent / "ci/lanes/docs/mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    # Below hubs/ stand the folders of the hubs with READMEs of their own, which the site leaves out.
    pages = {page for path in DOCS.rglob("*.md") if not (page := path.relative_to(DOCS).as_posix()).startswith("hubs/")}
    pages.add("hubs/README.md")
    assert pages - listed == set(), "add it to nav in ci/lanes/docs/mkdocs.yml"
    assert listed - pages == set()
