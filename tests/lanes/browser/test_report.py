"""The report, opened from disk: no request, no server, the same pages."""

import pytest

from tests.lanes.browser.reported import report_of
from tests.lanes.browser.watched import NARROW, WIDE


@pytest.fixture
def reported(opened, served, tmp_path):
    """A run's report, opened."""

    def open_report(name, **look):
        watched = opened(**look)
        watched.open(report_of(served.folder / name, tmp_path))
        watched.page.locator("h1").first.wait_for()
        watched.settle()
        return watched

    return open_report


def test_a_report_asks_for_nothing_but_itself(reported):
    watched = reported("almanac")

    assert [url.partition("#")[0].rpartition("/")[2] for url in watched.requests if not url.startswith("data:")] == [
        "report.html"
    ]


def test_it_shows_before_and_after_rubrics_and_lessons_at_once(reported):
    text = reported("almanac").page.inner_text("main")

    for heading in (
        "Which stage earned what",
        "The same question, before and after",
        "Rubrics born and retired",
        "What the bank learned",
        "Judge against truth",
    ):
        assert heading in text


def test_from_it_one_reads_an_attempt_with_its_scores_and_tokens(reported):
    page = reported("almanac").page

    page.get_by_role("link", name="Rollouts").click()
    page.get_by_text("A sample: 32 attempts of 32").wait_for()
    page.locator("tbody a").first.click()
    page.get_by_role("complementary", name="Scores on answer").wait_for()
    page.get_by_role("button", name="Tokens").click()

    page.locator(".tokens .t3").first.wait_for()


def test_what_is_not_in_the_sample_is_said(reported):
    watched = reported("almanac")

    watched.show("run/run/rollout/99-0-0")

    assert "This page is a sample of its run" in watched.page.inner_text("main")


@pytest.mark.parametrize("name", ["almanac", "evaluation", "ablation"])
@pytest.mark.parametrize("look", [{"scheme": "light", "size": WIDE}, {"scheme": "dark", "size": NARROW}])
def test_a_report_has_no_serious_finding(reported, axe, name, look):
    watched = reported(name, **look)

    assert watched.findings(axe) == []
    assert not watched.is_too_wide
