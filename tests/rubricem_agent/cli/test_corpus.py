"""`rubricem corpus build`, and the index as the tools of other commands."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("tantivy", reason="needs the extra 'documents'")

from rubricem_agent.cli.main import app
from rubricem_agent.config.tools import load_tools_config
from rubricem_agent.wiring.input_hashes import search_sha256
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import ToolCall, ToolStatus

PAGES = Path(__file__).parents[2] / "fixtures" / "pages"


def run(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(result.exception, UsageError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def built(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    shutil.copy(PAGES / "two_columns.pdf", folder)
    (folder / "bridge.html").write_text(
        "<html><head><title>Bridge</title></head><body><nav>Home Menu</nav><p>The mill bridge was built in 2019 and "
        "carries two lanes of the road over the river near the old mill.</p></body></html>"
    )
    (folder / "notes.md").write_text("# Owls\n\nThe red owl sleeps by day.")
    (folder / "picture.png").write_bytes(b"x")
    result = run("corpus", "build", folder, "-o", tmp_path / "ix", "--json")
    return tmp_path / "ix", json.loads(result.stdout), result.stderr


def test_a_folder_of_files_becomes_tools(built):
    index, document, warned = built
    assert (document["files"], document["read"], document["passed"]) == (3, 3, 1)
    assert "picture.png" in warned
    found = run("tools", "call", "google_search", "red owl", "--tools", index).stdout
    assert found.splitlines()[0] == "Owls: # Owls"
    assert "sub/" not in found
    assert "60 m wide at low water" in run("tools", "call", "snippet_search", "low water", "--tools", index).stdout
    page = run("tools", "call", "snippet_search", "mill lanes", "--tools", index, "--json").stdout
    assert "Menu" not in page
    answer = run("ask", "When was the mill bridge built?", "--tools", index, "--out", index.parent / "asked", "--quiet")
    assert "The mill bridge was built in 2019" in answer.stdout


def test_two_hundred_questions_at_once_lose_none(built):
    async def ask_all():
        async with open_tools(load_tools_config(built[0]), {}) as tools:
            calls = (ToolCall(name="snippet_search", query=f"red owl number {each}") for each in range(200))
            return await asyncio.gather(*map(tools.toolbox.call, calls))

    results = asyncio.run(ask_all())
    assert len(results) == 200
    assert all(result.status is ToolStatus.OK and result.snippets[0].title == "Owls" for result in results)


def test_an_evaluation_notices_that_the_index_has_changed(built, tmp_path):
    index, *_ = built
    before = search_sha256(str(index))
    run("corpus", "build", tmp_path / "docs", "-o", index)
    assert search_sha256(str(index)) == before
    (tmp_path / "docs" / "notes.md").write_text("# Owls\n\nThe red owl sleeps by night.")
    run("corpus", "build", tmp_path / "docs", "-o", index)
    assert search_sha256(str(index)) != before


def test_a_folder_that_is_no_index_is_one_sentence(tmp_path):
    with pytest.raises(
        UsageError,
        match=r"there is no index in .* Build one in a folder of its own with `rubricem corpus build /.*_index`",
    ):
        run("tools", "call", "google_search", "x", "--tools", tmp_path)
