"""The shipped page is the build of its sources, runs under its policy, and speaks of the types that the server does."""

import hashlib
import importlib.util
import json
import re
from pathlib import Path

import pytest

from rubricem_viewer.single_file import STATIC, load_bundle, source_hash

WEB = STATIC.parent / "web"
pytestmark = pytest.mark.skipif(not WEB.is_dir(), reason="the page's sources are not in an installed package")
API_TYPES = Path(__file__).parents[1] / "lanes" / "browser" / "api_types.py"


OWN = ("package.json", "package-lock.json", "vite.config.js", "index.html")
TYPES = "src/lib/api.ts"
"""Types alone: nothing of it is in the bundle."""


def source_digest(web=WEB):
    """Of path, length and bytes of each source, by path; as `web/vite.config.js` computes it."""
    inner = (path for path in (web / "src").rglob("*") if path.is_file())
    names = sorted({*(path.relative_to(web).as_posix() for path in inner), *OWN} - {TYPES})
    digest = hashlib.sha256()
    for name in names:
        content = (web / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def test_the_bundle_is_the_build_of_its_sources():
    recorded = json.loads((STATIC / "built_from.json").read_text(encoding="utf-8"))

    assert recorded["sources"] == source_digest(), "the sources have changed: make viewer-bundle"


def test_a_changed_source_has_another_digest(tmp_path):
    for name in OWN:
        (tmp_path / name).write_text("{}", encoding="utf-8")
    (tmp_path / "src").mkdir()
    before = source_digest(tmp_path)

    (tmp_path / "src" / "main.ts").write_text("x", encoding="utf-8")

    assert source_digest(tmp_path) != before


def test_the_page_knows_the_servers_types():
    spec = importlib.util.spec_from_file_location("api_types", API_TYPES)
    api_types = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(api_types)

    assert api_types.type_script() == api_types.API_TS.read_text(encoding="utf-8")


def test_the_bundle_can_stand_inside_a_page():
    # An end tag in the script would end the script element, a start tag after <!-- would hide the end; an import would
    # be a request.
    script, style = load_bundle()

    assert "</script" not in script.lower()
    assert "<script" not in script.lower()
    assert "</style" not in style.lower()
    assert "@import" not in style
    assert "url(" not in style


def test_no_source_shows_text_as_markup():
    sources = [path.read_text(encoding="utf-8") for path in (WEB / "src").rglob("*") if path.is_file()]

    assert sources
    assert not [
        text for text in sources if re.search(r"@html|innerHTML|outerHTML|insertAdjacentHTML|document\.write", text)
    ]


def test_the_page_of_the_server_asks_for_its_own_files_alone():
    page = (STATIC / "index.html").read_text(encoding="utf-8")

    assert sorted(re.findall(r'(?:src|href)="([^"]*)"', page)) == ["./viewer.css", "./viewer.js", "data:,"]


def test_the_name_of_a_script_is_the_one_that_browsers_compute():
    # echo -n "x" | openssl dgst -sha256 -binary | base64
    assert source_hash("x") == "sha256-LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE="
