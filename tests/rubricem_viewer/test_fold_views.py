"""Folds on the page of an attempt: where they are, and what the policy saw from there on."""

import json
import re

import pytest

from rubricem_env.domain.stage_set import DEEP_RESEARCH
from rubricem_env.env.view import views_of
from rubricem_env.testing.judges import attempt
from rubricem_env.tools.render import estimate_tokens
from rubricem_viewer import fold_views, samples
from rubricem_viewer.report import render_report
from tests.rubricem_viewer.folded import folded_attempt
from tests.rubricem_viewer.recorded_stages import record_run

PATH = "/trajectories/1-0-0"


@pytest.fixture(scope="module")
def hundred():
    return folded_attempt()


def test_an_attempt_that_was_never_folded_says_nothing_of_folds(recording, get):
    recording.add(trajectory=attempt())
    assert "folds" not in get(PATH)


def test_each_fold_has_its_place_and_its_sizes(recording, get, hundred):
    recording.add(trajectory=hundred)
    folds = get(PATH)["folds"]
    assert [fold["turn"] for fold in folds] == [fold.turn for fold in hundred.folds]
    assert len(folds) == 9
    for fold in folds:
        # The limits are 6,000 and 3,000; a page has some 520 tokens.
        assert 6_000 < fold["before"] < 7_000
        assert 1_400 < fold["after"] <= 3_000
        assert 0 < fold["folded"] < fold["turn"]
    later = get(PATH, from_element=200)
    assert later["elements"][0]["index"] == 200
    assert "folds" not in later


def seen_before(view, trajectory, turn):
    """The text that the policy saw before a turn, as the page says it: the prompt, folded turns, whole ones."""
    texts = [segment.text for segment in trajectory.segments]
    whole = [texts[place] + texts[place + 1] for place in range(1, len(texts) - 1, 2)]
    fold = next((fold for fold in reversed(view["folds"]) if fold["turn"] < turn), None)
    folded = "".join(part["text"] + part["observation"] for part in fold["seen"]) if fold else ""
    return texts[0] + folded + "".join(whole[fold["folded"] if fold else 0 : turn - 1])


def test_for_any_turn_the_page_says_what_the_policy_saw(recording, get, hundred):
    recording.add(trajectory=hundred)
    view = get(PATH)
    views = [seen.text for seen in views_of(hundred)]
    assert len(views) == 101
    assert [seen_before(view, hundred, turn) for turn in range(1, 102)] == views
    assert max(map(estimate_tokens, views)) < 7_000


def test_views_that_take_too_much_room_are_left_out_and_said_so(recording, get, hundred, monkeypatch):
    monkeypatch.setattr(fold_views, "ROOM", 50_000)
    recording.add(trajectory=hundred)
    folds = get(PATH)["folds"]
    shown = [fold["is_shown"] for fold in folds]
    assert shown[0]
    assert not shown[-1]
    assert all(bool(fold["seen"]) == fold["is_shown"] for fold in folds)


def answers_of(page):
    return json.loads(re.search(r'<script[^>]*id="recorded"[^>]*>(.*?)</script>', page, re.DOTALL)[1])["answers"]


def test_the_page_of_a_file_has_the_folds_and_all_pieces_of_a_long_attempt(tmp_path, hundred, monkeypatch):
    record_run(tmp_path, DEEP_RESEARCH.scaffold, trajectory=hundred)
    answers = answers_of(render_report(tmp_path))
    view = answers["/runs/run/trajectories/1-0-0"]
    assert len(view["folds"]) == len(hundred.folds)
    pages = [view, *(page for path, page in answers.items() if "/1-0-0?from_element=" in path)]
    assert sum(len(page["elements"]) for page in pages) == view["elements_total"]
    monkeypatch.setattr(samples, "LARGEST", 200_000)
    monkeypatch.setattr(samples, "ROOM", 1_000_000)
    small = render_report(tmp_path)
    assert len(small) < 2_600_000


def test_nothing_of_a_page_becomes_markup_in_the_file(tmp_path):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    record_run(tmp_path, DEEP_RESEARCH.scaffold, trajectory=folded_attempt(30, words=evil))
    page = render_report(tmp_path)
    assert evil in json.dumps(answers_of(page)["/runs/run/trajectories/1-0-0"]["folds"])
    assert page.count("<script") == 2
    assert "<img" not in page
