"""The bank in the viewer: pages, a search, uses and their effect, and the three changes."""

import json

import pytest

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.store import MemoryStore

RIVERS, LAWS = "Which river is wider?", "Which law is older?"


def test_a_recorded_bank_is_browsed_newest_first_and_cannot_be_changed(recording, get):
    recording.add().add_lessons(RIVERS, LAWS, step=1)

    page = get("/bank", size=1)
    refused = get.post("/bank/1", action="remove")

    assert [(row["id"], row["question"]) for row in page["rows"]] == [(2, LAWS)]
    assert (page["total"], page["counts"]["active"], page["editable"]) == (2, 2, False)
    assert "as of step 1" in page["note"]
    assert refused.status_code == 403


def test_words_and_a_status_narrow_the_list(recording, get):
    get.bank = recording.add_lessons(RIVERS, LAWS)
    get.bank.change(1, "quarantined", "too narrow")

    held = get("/bank", status="quarantined")["rows"]
    found = get("/bank", q="LAW")["rows"]

    assert [(row["id"], row["reason"]) for row in held] == [(1, "too narrow")]
    assert [row["id"] for row in found] == [2]


def test_a_search_finds_the_most_similar_question_first(recording, get):
    recording.add_lessons(RIVERS, LAWS)

    first, second = get("/bank/search", text="a wider river")["rows"]

    assert first["question"] == RIVERS
    assert first["similarity"] > second["similarity"]


def test_a_bank_without_its_embedder_is_browsed_but_not_searched(recording, get):
    get.bank = RubricBank(MemoryStore(embedder="minilm", dimension=4), None)

    assert get("/bank")["total"] == 0
    assert "without its embedder minilm" in get("/bank/search", expect=409, text="x")["message"]


@pytest.mark.parametrize(("action", "status"), [("quarantine", "quarantined"), ("remove", "removed")])
def test_an_item_of_a_folders_bank_is_quarantined_or_removed(recording, get, action, status):
    get.bank = recording.add_lessons(RIVERS)

    answer = get.post("/bank/1", action=action, reason="wrong")

    assert answer.json()["row"]["status"] == status
    assert (get.bank.item(1).status, get.bank.item(1).reason) == (status, "wrong")


def test_a_quarantined_item_is_approved_and_a_removed_one_is_not(recording, get):
    get.bank = recording.add_lessons(RIVERS, LAWS)
    get.bank.change(1, "quarantined", "")
    get.bank.change(2, "removed", "")

    approved = get.post("/bank/1", action="approve")
    refused = get.post("/bank/2", action="approve")

    assert approved.json()["row"]["status"] == "active"
    assert refused.status_code == 409
    assert "item 2 is removed" in refused.json()["message"]


def test_a_change_by_another_process_is_seen(recording, get):
    get.bank = recording.add_lessons(RIVERS)
    before = get("/bank")["counts"]

    get.bank.change(1, "quarantined", "")

    assert (before["quarantined"], get("/bank")["counts"]["quarantined"]) == (0, 1)


def test_an_item_tells_who_saw_it_and_what_it_did_to_the_same_question(recording, get, made):
    recording.add(step=1, scores=(0.2, 0.4), question=RIVERS)
    recording.add(step=2, scores=(0.8,), question=RIVERS, group={"lessons": (made.shown(1, 1.0),)})
    recording.add(step=3, scores=(0.6,), question=LAWS, group={"lessons": (made.shown(1, 0.4),)})
    recording.add_lessons(RIVERS)

    item = get("/bank/1")

    newest, own = item["uses"]
    assert (own["group"], own["own_question"], own["before"]["answer"]) == ("2-0", True, 0.3)
    assert (newest["group"], newest["own_question"], newest["before"]["answer"]) == ("3-0", False, None)
    # 0.8 with the lesson, 0.3 on average before it.
    assert (item["compared"], item["difference"]["answer"]) == (1, 0.5)
    assert item["row"]["uses"] == 2
    assert item["score"]["utility"] == 0.5


def test_an_unknown_item_is_named_as_missing(recording, get):
    recording.add_lessons(RIVERS)

    assert "no item 9" in get("/bank/9", expect=404)["message"]
    assert get("/bank/x", expect=422)["status"] == 422


def test_what_a_running_run_learns_appears_and_what_a_resumed_one_forgot_is_gone(recording, get, made):
    bank = recording.add_lessons(RIVERS, step=1)

    before = get("/bank")["total"]
    bank.write(made.lesson(LAWS))
    recording.recorder.record_lessons(bank.contents(since=recording.recorder.bank_revision), step=2)
    between = get("/bank")["total"]
    recording.recorder.begin(1, embedder="hashing-512")
    after = get("/bank")["total"]

    assert (before, between, after) == (1, 2, 1)


def test_a_damaged_vector_costs_its_item_alone(recording, get):
    recording.add_lessons(RIVERS, LAWS)
    path = recording.folder / "record" / "lessons.jsonl"
    header, first, second = path.read_text(encoding="utf-8").splitlines()
    broken = json.dumps(json.loads(first) | {"vector": "not base64"})
    path.write_text("\n".join((header, broken, second, "")), encoding="utf-8")

    assert [row["question"] for row in get("/bank")["rows"]] == [LAWS]
