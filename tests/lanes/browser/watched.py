"""A page that remembers its requests, dialogs, errors and refusals by its policy."""

import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    # Elsewhere than in the lane it is missing, and the tests are skipped.
    from playwright.sync_api import Browser

PATIENCE = 20.0
LEVELS = ("serious", "critical")
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


class Watched:
    def __init__(self, browser: "Browser", *, scheme: str = "light", size: dict[str, int] = WIDE) -> None:
        self._context = browser.new_context(color_scheme=scheme, viewport=size, reduced_motion="reduce")
        self.page = self._context.new_page()
        self.page.set_default_timeout(1000 * PATIENCE)
        self.wrongs: list[str] = []
        self.requests: list[str] = []
        self._base = ""
        self.page.on("dialog", self._refuse_dialog)
        self.page.on("pageerror", lambda error: self.wrongs.append(f"error: {error}"))
        self.page.on("console", lambda said: said.type == "error" and self.wrongs.append(f"console: {said.text}"))
        self.page.on("request", lambda request: self._note(request.url))
        self._context.on("page", lambda other: self.wrongs.append(f"opened {other.url}"))

    def open(self, url: str) -> None:
        parts = urlsplit(url)
        self._base = f"{parts.scheme}://{parts.netloc}/"
        self.page.goto(url)

    def show(self, place: str) -> None:
        """Go to an address of the page itself, and wait until nothing is waited for."""
        self.page.evaluate("place => { location.hash = place }", f"#/{place}")
        self.settle()

    def settle(self) -> None:
        self.page.wait_for_load_state("networkidle")
        self.until("!document.querySelector('main').innerText.includes('Reading…')")

    def until(self, claim: str) -> None:
        """Wait for a claim of JavaScript. The page's policy forbids what Playwright waits with: code from text."""
        deadline = time.monotonic() + PATIENCE
        while not self.page.evaluate(claim):
            if time.monotonic() > deadline:
                raise AssertionError(f"in {PATIENCE} s it did not become true that {claim}")
            self.page.wait_for_timeout(50)

    def findings(self, axe: str) -> list[str]:
        """What axe finds serious, one line each."""
        self.page.evaluate(axe)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {node['target']} {node['failureSummary']}"
            for one in found["violations"]
            if one["impact"] in LEVELS
            for node in one["nodes"][:3]
        ]

    @property
    def is_too_wide(self) -> bool:
        """Whether the page itself scrolls sideways; tables may, inside their frames."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def close(self) -> None:
        self._context.close()

    def _note(self, url: str) -> None:
        self.requests.append(url)
        if not url.startswith((self._base, "data:")):
            self.wrongs.append(f"asked for {url}")

    def _refuse_dialog(self, dialog) -> None:  # type: ignore[no-untyped-def]
        self.wrongs.append(f"dialog: {dialog.message}")
        dialog.dismiss()
