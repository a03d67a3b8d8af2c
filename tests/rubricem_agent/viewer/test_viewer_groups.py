"""Groups side by side, and the rubrics of a question over time."""

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.trajectory import query_key
from rubricem_env.testing.judges import attempt, careless, rubric

QUESTION = "Which is wider?"


def test_a_group_is_sorted_by_any_stage_and_the_best_comes_first(recording, get):
    recording.add(scores=(0.2, None, 0.9))

    orders = {
        sort: [one["row"]["attempt"] for one in get("/groups/1-0", sort=sort)["rollouts"]]
        for sort in ("attempt", "mean", "review", "answer")
    }

    # The second attempt has 0.5 everywhere but at the review, which the judge lost.
    assert orders == {"attempt": [0, 1, 2], "mean": [2, 1, 0], "review": [2, 0, 1], "answer": [2, 1, 0]}


def test_what_tells_attempts_apart_comes_with_its_spread_and_goes_with_the_score(recording, get):
    recording.add(scores=(0.0, 1.0))

    separators = get("/groups/1-0")["separators"]

    # Scores 0 and 1: a standard deviation of 0.5 at each stage, and in step with the mean. Nothing else differs.
    assert [one["key"] for one in separators] == ["plan", "research", "review", "answer"]
    assert {(one["spread"], one["agreement"]) for one in separators} == {(0.5, 1.0)}


def test_habits_that_differ_are_named_with_a_value_for_each_attempt(recording, get):
    recording.add(scores=(0.9, 0.1), trajectories=(attempt(), careless()))

    separators = {one["key"]: one for one in get("/groups/1-0")["separators"]}

    assert separators["repeated searches"]["values"] == [0.0, 1.0]
    assert separators["repeated searches"]["agreement"] == -1.0
    assert "searches" not in separators  # both search twice


def test_a_group_that_is_not_there_is_said_to_be_missing(recording, get):
    recording.add()

    assert "no group" in get("/groups/5-5", expect=404)["message"]
    assert get("/groups/1-0", expect=422, sort="size")["status"] == 422


def test_a_rubric_is_born_kept_retired_and_comes_back(recording, get, made):
    early, late = rubric("It plans.", Stage.PLAN), rubric("It reviews.", Stage.REVIEW)
    for step, active, retired in (
        (1, [early], []),
        (2, [early, late], []),
        (3, [late], [made.dropped(early, 3, "over_cap")]),
        (4, [late, early], []),
    ):
        group = {
            "rubrics": (early, late)[: step if step < 3 else 2],
            "active": tuple(made.kept(one, step, 0.25) for one in active),
            "retired": tuple(retired),
            "refused": ("too long",) if step == 2 else (),
        }
        recording.add(step=step, group=group)

    history = get(f"/questions/{query_key(QUESTION)}")

    first, second = history["rubrics"]
    assert [(one["step"], one["fate"], one["reason"]) for one in first["events"]] == [
        (1, "born", ""),
        (2, "kept", ""),
        (3, "retired", "over_cap"),
        (4, "returned", ""),
    ]
    assert (first["status"], second["status"]) == ("active", "active")
    assert second["events"][0]["variance"] == 0.25
    assert history["steps"][1]["refused"] == ["too long"]


def test_the_rubric_of_a_data_set_is_always_in_use(recording, get):
    given = rubric("It names the source.", persistent=True)
    recording.add(group={"rubrics": (given,), "active": ()})

    (life,) = get(f"/questions/{query_key(QUESTION)}")["rubrics"]

    assert (life["status"], [one["fate"] for one in life["events"]]) == ("persistent", ["born"])


def test_marks_and_their_mean_stand_beside_the_fate(recording, get):
    recording.add(scores=(0.5, 0.5), mark=2)

    (life,) = get(f"/questions/{query_key(QUESTION)}")["rubrics"]

    assert (life["events"][0]["marks"], life["events"][0]["mean"]) == ([2.0, 2.0], 2.0)


def test_questions_are_listed_with_the_steps_in_which_they_were_met(recording, get):
    recording.add(step=1).add(step=1, place=1, question="Which is deeper?").add(step=4)

    page = get("/questions")
    found = get("/questions", q="DEEPER")

    assert [(row["question"], row["steps"]) for row in page["rows"]] == [
        ("Which is wider?", [1, 4]),
        ("Which is deeper?", [1]),
    ]
    assert (found["matched"], page["rows"][0]["mean"]) == (1, 0.5)


@pytest.mark.parametrize("key", ["unknown", "0" * 64])
def test_a_question_that_was_not_met_is_said_to_be_missing(recording, get, key):
    recording.add()

    assert "no question" in get(f"/questions/{key}", expect=404)["message"]
