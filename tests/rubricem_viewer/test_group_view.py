"""Groups side by side, and the rubrics of a question over time."""

from rubricem_env.domain.base import Stage
from rubricem_env.domain.trajectory import query_key
from rubricem_env.testing.judges import attempt, careless
from tests.fakes import rubric

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


def test_statistics_that_differ_are_named_with_a_value_for_each_attempt(recording, get):
    recording.add(scores=(0.9, 0.1), trajectories=(attempt(), careless()))

    separators = {one["key"]: one for one in get("/groups/1-0")["separators"]}

    assert separators["repeated searches"]["values"] == [0.0, 1.0]
    assert separators["repeated searches"]["agreement"] == -1.0
    assert "searches" not in separators  # both search twice


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
    fates = [(one["step"], one["fate"], one["reason"]) for one in first["events"]]
    assert fates == [(1, "born", ""), (2, "kept", ""), (3, "retired", "over_cap"), (4, "returned", "")]
    assert (first["status"], second["status"]) == ("active", "active")
    assert second["events"][0]["variance"] == 0.25
    assert history["steps"][1]["refused"] == ["too long"]


def test_the_rubric_of_a_data_set_is_always_in_use_and_scores_come_with_their_mean(recording, get, made):
    given, own = rubric("It names the source.", persistent=True), rubric("The answer names the wider river.")
    group = {"rubrics": (given, own), "active": (made.kept(own, 1),)}
    recording.add(scores=(0.5, 0.5), rubric_score=2, group=group)

    first, second = get(f"/questions/{query_key(QUESTION)}")["rubrics"]

    assert (first["status"], [one["fate"] for one in first["events"]]) == ("persistent", ["born"])
    assert (second["events"][0]["scores"], second["events"][0]["mean"]) == ([2.0, 2.0], 2.0)


def test_questions_are_listed_with_the_steps_in_which_they_were_met(recording, get):
    recording.add(step=1).add(step=1, place=1, question="Which is deeper?").add(step=4)

    wider, deeper = get("/questions")["rows"]

    assert (wider["question"], wider["steps"], wider["mean"]) == ("Which is wider?", [1, 4], 0.5)
    assert (deeper["question"], deeper["steps"]) == ("Which is deeper?", [1])
    assert get("/questions", q="DEEPER")["rows"] == [deeper]
