"""A run with markup in every field, served and as a file: shown as text, asked nothing of anyone, nothing of it run."""

import pytest

from tests.lanes.browser.made_runs import EVIL
from tests.lanes.browser.watched import WIDE

PAGES = ("", "/rollouts", "/rollout/1-0-0", "/rollout/1-0-0?as=tokens", "/group/1-0", "/rubrics", "/bank", "/bank/5")
FOREIGN = "img, iframe, object, embed, base, form[action], [onerror], [onload], [onclick]"


@pytest.fixture(params=("served", "file"))
def hostile(request, opened, served, tmp_path):
    """The hostile run, opened from the server or from disk, and the address of its first page."""
    watched = opened(size=WIDE)
    if request.param == "served":
        watched.open(served.url)
        return watched, f"run/{served.runs['hostile']}"
    from tests.lanes.browser.reported import report_of

    watched.open(report_of(served.folder / "hostile", tmp_path))
    return watched, "run/run"


def test_a_hostile_run_is_inert_and_shown_as_it_is(hostile):
    watched, base = hostile

    for place in PAGES:
        watched.show(f"{base}{place}")
        page = watched.page
        foreign = page.evaluate(
            "selector => [...document.querySelectorAll(selector)].map(one => one.outerHTML.slice(0, 200))", FOREIGN
        )
        # The page's own script, and in a file its data.
        assert page.evaluate("document.scripts.length") == (1 if base != "run/run" else 2), place
        links = page.evaluate("[...document.querySelectorAll('a[href]')].map(one => one.getAttribute('href'))")
        assert foreign == [], place
        assert [href for href in links if not href.startswith(("#", "https://", "http://"))] == [], place


def test_the_markup_itself_is_read_on_the_page(hostile):
    watched, base = hostile

    watched.show(f"{base}/rollout/1-0-0")

    # Whatever is between: the heading is the question, as recorded.
    assert EVIL.partition("\u202e")[0] in watched.page.locator("h1").inner_text()


def test_links_outside_tell_nobody_where_they_were(hostile):
    watched, base = hostile

    watched.show(f"{base}/rollout/1-0-0")
    rels = watched.page.evaluate("[...document.querySelectorAll('a[target]')].map(one => one.rel)")

    assert set(rels) <= {"noreferrer noopener"}


@pytest.mark.parametrize("kind", ["served", "file"])
def test_what_the_policy_saw_is_inert(opened, served, tmp_path, kind):
    watched = opened(size=WIDE)
    if kind == "served":
        watched.open(served.url)
        base = f"run/{served.runs['folded']}"
    else:
        from tests.lanes.browser.reported import report_of

        watched.open(report_of(served.folder / "folded", tmp_path))
        base = "run/run"
    watched.show(f"{base}/rollout/1-0-0")

    for summary in watched.page.get_by_text("What the policy saw before turn").all()[:40]:
        summary.click()

    seen = "".join(watched.page.locator("details.seen pre").all_inner_texts())
    assert EVIL.partition("</script>")[0] in seen
    assert "onerror=" in seen
    assert watched.page.evaluate("selector => document.querySelectorAll(selector).length", FOREIGN) == 0
    assert watched.page.evaluate("document.scripts.length") == (1 if kind == "served" else 2)
