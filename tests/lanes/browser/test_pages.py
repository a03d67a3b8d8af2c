"""Every page of the served viewer: what it shows, by mouse and by keyboard, in dark and light, wide and narrow."""

import pytest

from tests.lanes.browser.watched import NARROW, WIDE

PAGES = (
    "",
    "compare?run={almanac}&run={other}",
    "run/{almanac}",
    "run/{almanac}/rollouts",
    "run/{almanac}/rollout/3-0-3",
    "run/{almanac}/rollout/3-0-3?as=tokens",
    "run/{almanac}/group/3-0",
    "run/{almanac}/rubrics",
    "run/{almanac}/question/{question}",
    "run/{almanac}/bank",
    "run/{almanac}/bank/5",
    "run/{other}/bank/1",
    "run/{evaluation}",
    "run/{evaluation}/example/{example}",
    "run/{ablation}",
    "run/{writing}",
    "run/{writing}/rollout/1-0-1",
    "run/{writing}/group/1-0",
    "compare?run={writing}&run={eight}",
    "run/{one}",
    "run/{one}/rollout/1-0-1",
    "run/{eight}",
    "run/{eight}/rollouts",
    "run/{eight}/rollout/1-0-1",
    "run/{eight}/rollout/1-0-1?as=tokens",
    "run/{eight}/group/1-0",
    "run/{eight}/question/k",
    "run/{folded}/rollout/1-0-0",
)
LOOKS = {
    "light and wide": {"scheme": "light", "size": WIDE},
    "dark and wide": {"scheme": "dark", "size": WIDE},
    "light and narrow": {"scheme": "light", "size": NARROW},
    "dark and narrow": {"scheme": "dark", "size": NARROW},
}


@pytest.fixture
def at(opened, served):
    """Open a page at an address of it."""

    def open_at(place="", **look):
        watched = opened(**look)
        watched.open(served.url)
        watched.settle()
        if place:
            watched.show(filled(watched, served, place))
        return watched

    return open_at


def filled(watched, served, place):
    """The address with the ids of this folder's runs."""
    names = dict(served.runs)
    if "{question}" in place:
        names["question"] = asked(watched, f"/runs/{names['almanac']}/questions")["rows"][0]["key"]
    if "{example}" in place:
        names["example"] = asked(watched, f"/runs/{names['evaluation']}/evaluation/examples")["rows"][0]["id"]
    return place.format(**names)


def asked(watched, path):
    """The server's answer, asked for as the page does."""
    script = (
        "async ([path, token]) => (await fetch('api' + path, {headers: {Authorization: 'Bearer ' + token}})).json()"
    )
    return watched.page.evaluate(script, [path, watched.page.evaluate("sessionStorage.getItem('rubricem-token')")])


@pytest.mark.parametrize("look", LOOKS)
def test_no_page_has_a_serious_finding_or_scrolls_sideways(at, served, axe, look):
    watched = at(**LOOKS[look])

    findings, wide = [], []
    for place in PAGES:
        watched.show(filled(watched, served, place))
        findings += [f"{place}: {one}" for one in watched.findings(axe)]
        wide += [place] if watched.is_too_wide else []

    assert findings == []
    assert wide == []


def test_the_token_leaves_the_address_and_the_history(at):
    watched = at()

    assert "token" not in watched.page.url
    assert not any("token=" in url for url in watched.requests[1:])


def test_without_the_token_the_page_says_what_to_do(opened, served):
    watched = opened()
    watched.open(served.url.partition("#")[0])
    watched.page.get_by_role("alert").first.wait_for()

    assert "Open the address that rubricem view printed" in watched.page.inner_text("main")
    # The browser itself notes the refusals; they are what this test is about.
    watched.wrongs.clear()


def test_two_chosen_runs_are_compared(at):
    page = at().page

    page.get_by_label("Compare almanac").check()
    page.get_by_label("Compare other").check()
    page.get_by_role("button", name="Compare 2").click()

    page.get_by_role("heading", name="2 runs side by side").wait_for()
    differing = page.locator("tr.differs").all_inner_texts()
    assert any("meta_policy" in row and "true" in row and "false" in row for row in differing)
    assert page.locator("figure").count() > 10


def test_rollouts_are_filtered_while_typing(at):
    page = at("run/{almanac}/rollouts").page

    page.get_by_label("Words of the question").press_sequentially("drug")
    page.get_by_text("8 of 32 attempts").wait_for()

    assert {"drug" in row for row in page.locator("tbody tr").all_inner_texts()} == {True}
    assert "q=drug" in page.url


def test_rollouts_are_ordered_by_the_score_of_a_stage(at):
    watched = at("run/{almanac}/rollouts")
    page = watched.page

    page.get_by_label("Stage to order by").select_option("review")
    page.get_by_label("Order of the attempts").select_option("best")
    watched.until("document.querySelector('tbody svg').getAttribute('aria-label').includes('review 1.00')")


def test_a_trajectory_shows_its_stages_in_their_order_with_scores_beside_them(at):
    page = at("run/{almanac}/rollout/1-0-0").page

    bands = page.locator("section.band h2").all_inner_texts()
    assert bands == ["plan", "research", "review", "answer"]
    review = page.get_by_role("complementary", name="Scores on review")
    assert "audits the depth of Calm Bridge" in review.inner_text()
    assert review.get_by_role("img", name="0 of 2").count() == 1


def test_a_run_of_eight_stages_shows_each_in_its_place_and_colour(at):
    page = at("run/{eight}/rollout/1-0-1").page

    bands = page.locator("section.band")
    names = [text.strip() for text in bands.locator("h2").all_inner_texts()]
    assert names == [f"closed_{number}" for number in (1, 2)] + ["work"] + [
        f"opened_{number}" for number in range(1, 5)
    ] + ["end"]
    colours = page.evaluate(
        "[...document.querySelectorAll('.stages button')].map((one) => getComputedStyle(one).borderLeftColor)"
    )
    assert len(set(colours)) == 8
    page.keyboard.press("8")
    assert page.evaluate("document.querySelector('#stage-end').getBoundingClientRect().top < innerHeight")


def test_the_blocks_of_another_task_have_their_own_names(at):
    page = at("run/{writing}/rollout/1-0-1").page

    assert {"outline", "draft", "revision", "answer"} <= {*page.locator(".element h4").all_inner_texts()}
    assert {"aims", "order"} <= {*page.locator(".element h5").all_inner_texts()}


def test_a_citation_jumps_to_its_snippet(at):
    page = at("run/{almanac}/rollout/1-0-0").page

    page.locator(".answer").get_by_role("link", name="Snippet S_1", exact=True).first.click()

    assert page.evaluate("document.activeElement.id") == "snippet-S_1"


def test_a_score_shows_the_passage_that_it_judges(at):
    page = at("run/{almanac}/rollout/1-0-0").page

    page.get_by_role("complementary", name="Scores on plan").get_by_role("button", name="Show the passage").click()

    assert page.locator("span.lit").first.inner_text() == "Explicit: the old width of Calm Bridge is 265 m"
    assert page.evaluate("document.activeElement.id").startswith("element-")


def test_the_keyboard_alone_walks_a_group_and_its_stages(at):
    page = at("run/{almanac}/rollout/1-0-0").page

    page.keyboard.press("j")
    page.get_by_text("attempt 2 of 4").wait_for()
    page.keyboard.press("k")
    page.get_by_text("attempt 1 of 4").wait_for()
    page.keyboard.press("4")

    assert page.evaluate("document.querySelector('#stage-answer').getBoundingClientRect().top < innerHeight")


def test_the_keyboard_alone_reaches_the_content_and_a_run(at):
    page = at().page

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "MAIN"
    for _ in range(24):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "almanac":
            break
    page.keyboard.press("Enter")

    page.get_by_role("heading", name="Which stage earned what").wait_for()


def test_tokens_are_coloured_by_the_advantage_of_their_stage(at):
    page = at("run/{almanac}/rollout/1-0-0").page

    page.get_by_role("button", name="Tokens").click()
    page.locator(".tokens .t0.up4").first.hover()

    assert "plan, advantage +1.00" in page.locator(".key [role=status]").inner_text()


def test_the_attempts_of_a_group_are_sorted_by_a_stage(at):
    watched = at("run/{almanac}/group/3-0")
    page = watched.page
    attempts = page.locator("thead th a")

    assert attempts.all_inner_texts() == ["Attempt 1", "Attempt 2", "Attempt 3", "Attempt 4"]
    page.get_by_role("button", name="review").click()
    watched.until("document.querySelector('thead th a').innerText === 'Attempt 4'")
    assert "What tells them apart" in page.inner_text("main")


def test_a_rubric_is_seen_born_and_retired_with_the_reason(at):
    page = at("run/{almanac}/question/{question}").page

    row = page.locator("tr", has_text="finds the depth of Calm Bridge")
    assert "born, variance" in row.inner_text()
    assert "retired: it separates nothing" in row.inner_text()


def test_the_bank_is_searched_by_similarity(at):
    page = at("run/{almanac}/bank").page

    page.get_by_label("Find items like this question").fill("What is the depth of the river Calm Bridge?")
    page.get_by_text("similarity 1.00").wait_for()

    assert "Calm Bridge" in page.locator(".list li").first.inner_text()


def test_a_lesson_is_quarantined_with_a_reason_and_approved_again(at):
    page = at("run/{other}/bank/1").page

    page.get_by_role("button", name="Quarantine", exact=True).click()
    page.get_by_label("Why?").fill("too narrow")
    page.get_by_role("button", name="Quarantine it").click()
    page.get_by_text("quarantined: too narrow").first.wait_for()
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Quarantine", exact=True).wait_for()


def test_an_evaluation_leads_to_an_attempt(at):
    page = at("run/{evaluation}").page

    page.locator("tbody .text a").first.click()
    page.get_by_role("heading", name="The attempt").wait_for()

    assert page.locator("section.band").count() >= 2


def test_an_ablation_has_its_table_and_its_figure(at):
    page = at("run/{ablation}").page

    assert page.locator("tbody tr").count() == 4
    assert page.locator("figure polyline").count() == 4
    assert page.locator("figure polygon").count() == 4


def test_a_run_that_goes_on_is_followed(at, served):
    watched = at("run/{other}")
    log = served.folder / "other" / "metrics.jsonl"
    last = next(line for line in log.read_text(encoding="utf-8").splitlines()[::-1] if '"judged"' in line)

    with log.open("a", encoding="utf-8") as file:
        file.write(last.replace('"step": 4', '"step": 5') + "\n")

    watched.page.get_by_text("5 of 4").first.wait_for()


def test_a_run_of_a_newer_release_says_so_and_the_others_are_there(at):
    watched = at()

    assert "unreadable" in watched.page.locator("tr", has_text="newer").first.inner_text()
    watched.page.get_by_role("link", name="newer", exact=True).click()
    watched.page.get_by_role("alert").first.wait_for()
    assert "Upgrade rubricem" in watched.page.get_by_role("alert").first.inner_text()
    # The browser itself notes the refusals, a moment later.
    watched.settle()
    watched.page.wait_for_timeout(300)
    watched.wrongs.clear()


def test_the_chosen_colours_last(at):
    page = at().page

    page.get_by_role("button", name="Colours").click()
    page.get_by_role("button", name="Colours").click()
    page.reload()

    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_among_the_tokens_a_border_says_where_the_policy_read_a_folded_context(at):
    page = at("run/{folded}/rollout/1-0-0?as=tokens").page
    border = page.get_by_text("Folded: the policy reads on from here")
    assert border.count() == 1
    assert page.locator(".window + .token").get_attribute("data-place") == "3"


def test_a_fold_is_a_line_and_each_turn_says_what_the_policy_saw(at):
    watched = at("run/{folded}/rollout/1-0-0")
    page = watched.page
    more = page.get_by_role("button", name="pieces more")
    while more.count():
        before = page.locator(".element").count()
        more.click()
        watched.until(f"document.querySelectorAll('.element').length > {before}")
    lines = page.get_by_text("Folded here:").all_inner_texts()
    assert len(lines) >= 9
    assert all("tokens" in line for line in lines)
    assert page.locator("svg rect.fold").count() >= 1

    # Nothing was folded before turn 2.
    page.get_by_text("What the policy saw before turn 2", exact=True).click()
    assert page.get_by_text("Turn 1 whole, as on this page.").is_visible()
    page.get_by_text("What the policy saw before turn 100", exact=True).click()
    assert page.get_by_text("Before all turns").first.is_visible()
    assert page.get_by_text("Folded: earlier calls that are left out with their results").first.is_visible()
    assert page.get_by_text("to 99 whole, as on this page.").is_visible()
    assert page.locator("img").count() == 0
