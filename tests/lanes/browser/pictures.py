"""Takes the pictures of the documents anew: `.venv-browser/bin/python -m tests.lanes.browser.pictures`.

They show the recorded run and a real evaluation by the almanac's script, nothing made up.
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.lanes.browser.made_runs import SAMPLE, make_evaluation
from tests.lanes.browser.served import Served, listen

IMAGES = Path(__file__).parents[3] / "docs" / "images"
QUESTION = "a64159383a21a88fc7e19cd4e8dba88fcd374f62d57df71e390100ac627bb5cd"
PICTURES = {
    "viewer-run": ("run/{almanac}", 1000, "light"),
    "viewer-trajectory": ("run/{almanac}/rollout/1-0-0", 1000, "light"),
    "viewer-trajectory-dark": ("run/{almanac}/rollout/4-1-3", 1000, "dark"),
    "viewer-tokens": ("run/{almanac}/rollout/1-0-0?as=tokens", 1000, "light"),
    "viewer-group": ("run/{almanac}/group/3-0", 1000, "light"),
    "viewer-rubrics": ("run/{almanac}/question/" + QUESTION, 860, "light"),
    "viewer-bank": ("run/{almanac}/bank/5", 860, "dark"),
    "viewer-evaluation": ("run/{evaluation}", 900, "light"),
}


def main() -> None:
    """Serve a folder of two runs, and take each picture."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        folder = Path(place) / "runs"
        shutil.copytree(SAMPLE, folder / "almanac")
        make_evaluation(folder / "evaluation", limit=24)
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        with listen(folder) as served:
            for name, (address, height, scheme) in PICTURES.items():
                _take(browser, served, address.format(**served.runs), IMAGES / f"{name}.png", height, scheme)
        browser.close()


def _take(browser: Browser, served: Served, address: str, path: Path, height: int, scheme: str) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1280, "height": height})  # type: ignore[arg-type]
    page.goto(f"{served.url}&/{address}")
    page.locator("h1").wait_for()
    page.wait_for_load_state("networkidle")
    page.screenshot(path=path)
    page.close()


if __name__ == "__main__":
    main()
