"""Debian's Chromium, a served folder of runs, and a page that remembers all it did."""

import os
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).parent
AXE = HERE / "node_modules" / "axe-core" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def chromium():
    """The browser's path; without one the lane says so and is skipped."""
    pytest.importorskip("playwright.sync_api", reason="run by `make browser-lane` in an environment of its own")
    found = os.environ.get("RUBRICEM_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed, and RUBRICEM_CHROMIUM names none")
    return found


@pytest.fixture(scope="session")
def browser(chromium):
    # Not at the top: elsewhere than in the lane playwright is missing, and the tests are skipped.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox needs rights that containers do not give; what is shown here is our own.
        launched = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def axe():
    if not AXE.is_file():
        pytest.skip(f"axe is not installed; run: npm ci --prefix {HERE}")
    return AXE.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def served(tmp_path_factory, chromium):
    from tests.lanes.browser.served import serve_runs

    with serve_runs(tmp_path_factory.mktemp("runs")) as up:
        yield up


@pytest.fixture
def opened(browser):
    """Opens a page, and afterwards holds it to what no page of ours may do."""
    from tests.lanes.browser.watched import Watched

    pages = []

    def open_page(**look):
        pages.append(Watched(browser, **look))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()
        assert page.wrongs == []
