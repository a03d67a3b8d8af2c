"""Trajectories over HTTP: pages and filters, one with its judgement, its tokens, and what cannot be read."""

import json

import pytest

from rubricem_env.domain.trajectory import Ending
from rubricem_env.testing.judges import ANSWER, attempt, careless, policy
from rubricem_records.files.packed_lines import pack_line, read_packed
from tests.rubricem_viewer.conftest import TOKENS

PATH = "/trajectories"


def ids(page):
    return [row["id"] for row in page["rows"]]


def test_pages_come_newest_first_and_say_how_many_there_are(recording, get):
    recording.add(step=1).add(step=2)

    page = get(PATH, size=2)

    assert (page["total"], page["matched"], page["steps"]) == (6, 6, [1, 2])
    assert ids(page) == ["2-0-0", "2-0-1"]
    assert ids(get(PATH, size=2, page=3)) == ["1-0-1", "1-0-2"]
    assert ids(get(PATH, size=2, sort="oldest")) == ["1-0-0", "1-0-1"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"q": "WIDER"}, {"1-0-0", "1-0-1", "1-0-2"}),
        ({"q": "deeper"}, {"2-0-0"}),
        ({"step_from": 2}, {"2-0-0"}),
        ({"step_to": 1, "score_from": 0.5}, {"1-0-1", "1-0-2"}),
        ({"stage": "plan", "score_to": 0.1}, {"1-0-0"}),
        ({"group": "2-0"}, {"2-0-0"}),
        ({"lesson": 7}, {"2-0-0"}),
        ({"ending": "abandoned"}, {"2-0-0"}),
        ({"ending": "stalled"}, set()),
        ({"valid": False}, {"2-0-0"}),
        ({"q": "wider", "valid": False}, set()),
    ],
)
def test_filters_find_what_they_name(recording, get, made, asked, found):
    recording.add(step=1)
    broken = attempt().model_copy(update={"ending": Ending.ABANDONED})
    group = {"lessons": (made.shown(7),)}
    recording.add(step=2, scores=(0.3,), question="Which is deeper?", group=group, trajectory=broken, failure="lost")

    page = get(PATH, **asked)

    assert set(ids(page)) == found
    assert page["matched"] == len(found)


def test_the_best_come_first_by_a_stage_and_those_without_a_score_last(recording, get):
    recording.add(scores=(0.2, None, 0.9))

    best, worst = (ids(get(PATH, sort=sort, stage="review")) for sort in ("best", "worst"))

    assert best == ["1-0-2", "1-0-0", "1-0-1"]
    assert worst == ["1-0-0", "1-0-2", "1-0-1"]


def test_a_stage_that_the_judge_lost_has_no_score_and_is_no_zero(recording, get):
    recording.add(scores=(None,))

    view = get(f"{PATH}/1-0-0")

    review = view["stages"][2]
    assert (review["score"], review["unscored"], review["detail"]) == (None, "judge_failed", "no reply")
    assert view["row"]["scores"]["review"] is None
    assert view["row"]["valid"] is True, "the answer's score stands in for the failed stage, as in training"


def test_a_trajectory_is_shown_element_by_element_with_its_stages(recording, get):
    recording.add()

    view = get(f"{PATH}/1-0-1")

    kinds = [element["kind"] for element in view["elements"]]
    assert kinds == [
        *("prompt", "think", "plan", "call", "result"),
        *("think", "state_evaluation", "call", "result"),
        *("think", "state_evaluation", "think", "review", "answer"),
    ]
    sections = [section["name"] for section in view["elements"][2]["sections"]]
    assert sections == ["deep_analysis", "rubric", "research_plan"]
    assert view["elements"][3]["call"]["query"] == "Amber Badger river width"
    assert view["elements"][4]["snippets"][0]["id"] == "S_1"
    stages = dict.fromkeys(element["stage"] for element in view["elements"])
    assert list(stages) == ["", "plan", "research", "review", "answer"]
    assert view["attempts"] == ["1-0-0", "1-0-1", "1-0-2"]
    assert [stage["advantage"] for stage in view["stages"]] == [-1.0, 0.0, 0.5, 1.0]


def test_citations_and_quotations_have_places_that_a_script_can_cut_out(recording, get):
    wide = ANSWER.replace("<answer>", "<answer>\N{WATER WAVE}\N{WATER WAVE} ")
    reason = "It says “Amber Badger is wider”, rightly."
    recording.add(scores=(0.5,), trajectory=attempt(answer=wide), reason=reason, rubric_score=2)

    view = get(f"{PATH}/1-0-0")

    answer = view["elements"][-1]
    units = answer["text"].encode("utf-16-le")
    cut = [units[2 * one["start"] : 2 * one["end"]].decode("utf-16-le") for one in answer["citations"]]
    assert [text.startswith('<cite id="S_') for text in cut] == [True, True]
    (score,) = view["stages"][3]["scores"]
    (passage,) = score["passages"]
    assert (score["rubric_score"]["score"], score["rubric"]["title"]) == (2.0, "The answer names the wider river.")
    assert passage["element"] == answer["index"]
    assert units[2 * passage["start"] : 2 * passage["end"]].decode("utf-16-le") == "Amber Badger is wider"


def test_an_invented_citation_and_a_repeated_search_are_marked(recording, get):
    recording.add(scores=(0.0,), trajectory=careless())

    view = get(f"{PATH}/1-0-0")

    assert [element["repeated"] for element in view["elements"] if element["call"]] == [False, True]
    assert view["unknown_citations"] == ["S_99"]
    assert view["elements"][-1]["citations"][0]["known"] == []
    codes = {violation["code"] for violation in view["violations"]}
    assert {"unknown_citation", "missing_review"} <= codes
    passages = [violation["passage"] for violation in view["violations"] if violation["turn"]]
    assert all(passage["element"] < view["elements_total"] for passage in passages)


def test_a_very_long_trajectory_comes_in_pages_and_its_long_elements_in_parts(recording, get):
    page = "word " * 200_000
    many = attempt(page=page)
    turns = [policy("<think>x</think>" * 300)]
    recording.add(scores=(0.5,), trajectory=many.model_copy(update={"segments": (*many.segments[:-1], *turns)}))

    first = get(f"{PATH}/1-0-0")
    later = get(f"{PATH}/1-0-0", from_element=200)
    part = get(f"{PATH}/1-0-0/elements/4", offset=0)
    rest = get(f"{PATH}/1-0-0/elements/4", offset=part["next_offset"])

    assert len(first["elements"]) == 200
    assert later["elements"][0]["index"] == 200
    assert later["elements_total"] == first["elements_total"] > 300
    assert len(json.dumps(first)) < 400_000
    assert rest["offset"] == len(part["text"]) == 20_000


def test_tokens_come_with_what_they_say_and_the_advantage_of_their_stage(recording, get):
    recording.add(scores=(0.5,))
    assert get(f"{PATH}/1-0-0/tokens", limit=1)["texts"] == ["#0"]
    recording.recorder.record_vocabulary(lambda: ["a", "b", "c", "<script>"])

    tokens = get(f"{PATH}/1-0-0/tokens")
    later = get(f"{PATH}/1-0-0/tokens", offset=5, limit=1)

    assert tokens["texts"] == ["a", "b", "c", "<script>", "b", "c", "#99"]
    assert tokens["stages"] == [-1, -1, 0, 1, 2, 3, -1]
    assert tokens["advantages"] == [None, None, -1.0, 0.0, 0.5, 1.0, None]
    assert tokens["logprobs"][2] == -0.5
    assert (later["total"], later["texts"]) == (7, ["c"])
    recording.add(step=2, scores=(0.5,), tokens=False)
    assert get(f"{PATH}/2-0-0/tokens")["total"] == 0


def test_the_tokens_of_a_folded_attempt_say_where_each_later_window_begins(recording, get):
    recording.add(scores=(0.5,), tokens=TOKENS.model_copy(update={"window_starts": (0, 3, 5)}))
    assert get(f"{PATH}/1-0-0/tokens")["windows"] == [3, 5]
    assert get(f"{PATH}/1-0-0/tokens", offset=4, limit=1)["windows"] == []
    assert get(f"{PATH}/1-0-0/tokens", offset=5, limit=1)["windows"] == [5]


def test_a_line_counts_once_it_is_whole_and_a_broken_one_is_left_out_and_counted(recording, get):
    recording.add(step=1)
    index = recording.folder / "record" / "rollouts.index.jsonl"
    whole = index.read_bytes()

    index.write_bytes(whole[:-20])
    assert get(PATH)["total"] == 2
    index.write_bytes(whole + b'{"at": "nowhere"}\n')
    assert get(PATH)["total"] == 3
    assert "1 lines" in get("")["notes"][0]
    recording.add(step=2)
    assert get("/state")["recorded"] == 6


def test_a_resumed_run_shows_what_it_did_again_and_not_what_it_did_first(recording, get):
    recording.add(step=1).add(step=2)

    get(PATH)
    recording.recorder.begin(1, embedder="hashing-512")
    recording.add(step=2, scores=(1.0,))
    page = get(PATH)

    assert ids(page) == ["2-0-0", "1-0-0", "1-0-1", "1-0-2"]
    assert page["rows"][0]["mean"] == 1.0


def test_a_record_of_another_release_is_refused_with_a_sentence(recording, get):
    recording.add()
    index = recording.folder / "record" / "groups.index.jsonl"
    index.write_bytes(index.read_bytes().replace(b'"record":2', b'"record":3,"more":[]'))

    card = get("")["card"]
    refused = get(PATH, expect=409)["message"]

    assert card["state"] == "unreadable"
    assert card["problem"] == refused
    assert "another release (format 3" in refused


def test_a_rollout_of_a_newer_release_is_refused_alone(recording, get):
    recording.add()
    folder = recording.folder / "record"
    (first, *others), index = read_packed(folder / "rollouts.jsonl.gz"), folder / "rollouts.index.jsonl"
    newer = pack_line(first.rstrip().replace(b'"rollout":{"version":1', b'"rollout":{"version":9'))
    end = (folder / "rollouts.jsonl.gz").stat().st_size
    with (folder / "rollouts.jsonl.gz").open("ab") as data:
        data.write(newer)
    header, head, *heads = index.read_text().splitlines()
    moved = json.dumps({**json.loads(head), "at": end, "size": len(newer)}, separators=(",", ":"))
    index.write_text("\n".join((header, moved, *heads)) + "\n")
    assert len(others) == 2

    assert "version" in get(f"{PATH}/1-0-0", expect=409)["message"]
    assert get(f"{PATH}/1-0-1")["row"]["id"] == "1-0-1"


def test_a_run_without_a_record_says_how_to_have_one(recording, get):
    assert "record=" in get(PATH, expect=404)["message"]
    assert "record=true" in get("")["notes"][0]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        *(
            (f"{PATH}/{name}", "no trajectory")
            for name in ("9-9-9", "1-0-99", "x", "1-0", "1-0--1", "9" * 5_000 + "-1-1")
        ),
        (f"{PATH}/1-0-0/elements/99", "no number 99"),
        ("/groups/5-5", "no group"),
        ("/questions/unknown", "no question"),
        ("/bank", "no bank to show"),
        ("/evaluation", "no evaluation"),
        ("/ablation", "no ablation"),
    ],
)
def test_what_is_missing_is_named(recording, get, path, said):
    recording.add()

    assert said in get(path, expect=404)["message"]


@pytest.mark.parametrize(
    "asked",
    [{"page": 0}, {"size": 0}, {"size": 10_000}, {"sort": "x"}, {"stage": "x"}, {"score_from": 2}, {"q": "x" * 501}],
)
def test_a_parameter_out_of_its_range_is_named(recording, get, asked):
    recording.add()

    assert next(iter(asked)) in get(PATH, expect=422, **asked)["message"]
