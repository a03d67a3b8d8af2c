"""Probation: who sees a lesson, what its effect is estimated to be, and what that decides."""

import math
from collections import Counter

import numpy as np
import pytest

from rubricem_agent.memory.bank import RetrievalSettings, RubricBank
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.memory.probation import (
    GuidedScore,
    ProbationSettings,
    decide,
    describe_effect,
    draw_attempts,
    measure_effect,
)
from rubricem_agent.memory.snapshot import load_snapshot, save_snapshot
from rubricem_agent.memory.store import MemoryStore
from rubricem_env.domain.judgement import Provenance
from rubricem_env.domain.trajectory import query_key
from rubricem_records.bank.bank_items import BankItem, LessonEffect
from tests.fakes import make_reflection

SETTINGS = ProbationSettings()


def open_bank(embedder, probation=SETTINGS, **options):
    return RubricBank(MemoryStore(embedder="plane", dimension=2), embedder, probation=probation, **options)


def numbers(hits):
    return [hit.item.id for hit in hits]


def numbers_of(items):
    return [item.id for item in items]


def group(*pairs):
    """Attempts as (numbers of the items that were seen, score)."""
    return [GuidedScore(frozenset(items), score) for items, score in pairs]


def item(**fields):
    return BankItem(id=1, revision=1, reflection=make_reflection("at 0"), **({"status": "probation"} | fields))


def measured(*groups, settings=SETTINGS, **fields):
    lesson = item(**fields)
    for number, attempts in enumerate(groups):
        effect = measure_effect(lesson, attempts, question=f"question {number}", settings=settings)
        lesson = lesson.model_copy(update={"effect": effect})
    return lesson


HARMFUL = group(([1], 0.2), ([1], 0.3), ([1], 0.2), ([1], 0.3), ([], 0.8), ([], 0.7), ([], 0.8), ([], 0.7))
HELPFUL = group(([1], 0.8), ([1], 0.7), ([1], 0.8), ([1], 0.7), ([], 0.2), ([], 0.3), ([], 0.2), ([], 0.3))
LEVEL = group(([1], 0.5), ([1], 0.6), ([], 0.6), ([], 0.5))


# -- who sees a lesson


@pytest.mark.parametrize(("share", "count"), [(0.5, 4), (0.25, 2), (0.75, 6)])
def test_a_share_of_the_attempts_sees_a_lesson(share, count):
    seen = draw_attempts(range(8), share, seed=3, item=7)
    assert len(seen) == count
    assert seen <= set(range(8))


def test_a_share_that_is_no_whole_number_is_met_on_average():
    sizes = [len(draw_attempts(range(3), 0.5, seed=seed, item=1)) for seed in range(400)]
    assert set(sizes) == {1, 2}
    assert np.mean(sizes) == pytest.approx(1.5, abs=0.1)


def test_every_attempt_is_as_likely_and_lessons_are_drawn_apart():
    drawn = [draw_attempts(range(4), 0.5, seed=seed, item=1) for seed in range(600)]
    counts = Counter(attempt for attempts in drawn for attempt in attempts)
    assert all(abs(counts[attempt] - 300) < 60 for attempt in range(4))
    others = [draw_attempts(range(4), 0.5, seed=seed, item=2) for seed in range(600)]
    same = np.mean([attempts == other for attempts, other in zip(drawn, others, strict=True)])
    assert same == pytest.approx(1 / 6, abs=0.06)


def test_the_draw_depends_on_seed_and_item_alone():
    assert draw_attempts(range(8), 0.5, seed=3, item=7) == draw_attempts(range(8), 0.5, seed=3, item=7)


# -- the estimate


def test_the_effect_is_the_difference_within_groups_shrunk_by_the_prior():
    effect = measured(group(([1], 0.8), ([1], 0.6), ([], 0.4), ([], 0.2))).effect
    # One comparison of two with two weighs 1; each side's scores deviate from their mean by 0.1.
    assert (effect.shown, effect.unshown, effect.weight, effect.freedom) == (2, 2, 1.0, 2)
    assert effect.gain == pytest.approx(0.4)
    assert effect.squares == pytest.approx(0.04)
    variance = (0.04 * 8 + 0.04) / 10
    precision = 1.0 / variance + 1.0 / 0.05**2
    assert effect.mean == pytest.approx(0.4 / variance / precision)
    assert effect.high - effect.mean == pytest.approx(1.6448536 / math.sqrt(precision))
    assert effect.mean - effect.low == pytest.approx(effect.high - effect.mean)


def test_groups_of_different_questions_are_compared_each_with_itself():
    easy = group(([1], 0.9), ([], 0.9))
    hard = group(([1], 0.1), ([1], 0.1), ([1], 0.1), ([], 0.1))
    effect = measured(easy, hard).effect
    assert effect.gain == pytest.approx(0.0)
    assert effect.weight == pytest.approx(0.5 + 0.75)
    assert effect.questions == ("question 0", "question 1")


def test_only_attempts_that_saw_the_same_other_lessons_are_compared():
    # Lesson 2 is worth 0.5; lesson 1 nothing. Whoever saw 1 alone has nobody to be compared with.
    effect = measured(group(([1, 2], 0.9), ([2], 0.9), ([1], 0.4), ([1], 0.4), ([3], 0.1))).effect
    assert (effect.shown, effect.unshown, effect.gain) == (1, 1, 0.0)


def test_a_group_in_which_all_attempts_saw_the_lesson_says_nothing():
    assert measured(group(([1], 0.9), ([1], 0.2))).effect == LessonEffect()
    assert measured(group(([], 0.9), ([2], 0.2))).effect == LessonEffect()


def test_the_estimate_finds_the_true_effect_and_its_interval_holds_it():
    rng = np.random.default_rng(0)
    settings = ProbationSettings(prior_spread=1.0)
    held = 0
    for _ in range(200):
        groups = []
        for _ in range(12):
            level = rng.uniform(0.3, 0.7)
            scores = level + rng.normal(0, 0.1, 8) + np.repeat([0.05, 0.0], 4)
            groups.append([GuidedScore(frozenset([1] if at < 4 else []), score) for at, score in enumerate(scores)])
        effect = measured(*groups, settings=settings).effect
        held += effect.low <= 0.05 <= effect.high
    assert 170 <= held <= 192  # nine in ten


# -- what it decides


def test_a_lesson_that_lowers_scores_is_quarantined_with_its_numbers():
    decision = decide(measured(HARMFUL, HARMFUL), SETTINGS)
    assert decision.status == "quarantined"
    assert decision.reason.startswith("it lowers scores: -0.")
    assert "8 attempts that saw it and 8 that did not, at 2 questions" in decision.reason


def test_a_lesson_is_admitted_by_its_interval_and_a_quorum_of_questions():
    assert decide(measured(HELPFUL, HELPFUL), SETTINGS) is None
    assert decide(measured(HELPFUL, HELPFUL, HELPFUL), SETTINGS).status == "active"


def test_one_question_again_and_again_is_no_quorum():
    lesson = item()
    for _ in range(5):
        effect = measure_effect(lesson, HELPFUL, question="the same", settings=SETTINGS)
        lesson = lesson.model_copy(update={"effect": effect})
    assert decide(lesson, SETTINGS) is None


def test_a_lesson_without_effect_stays_until_patience_ends():
    assert decide(measured(LEVEL), SETTINGS) is None
    decision = decide(measured(*[LEVEL] * 4), ProbationSettings(patience=8))
    assert (decision.status, decision.reason.split(":")[0]) == ("quarantined", "undecided")


def test_a_margin_admits_lessons_that_do_no_harm():
    assert decide(measured(*[LEVEL] * 4), ProbationSettings(least_effect=-0.2)).status == "active"


def test_an_admitted_lesson_that_harms_is_withdrawn():
    assert decide(measured(HARMFUL, HARMFUL, status="active"), SETTINGS).status == "quarantined"


@pytest.mark.parametrize("status", ["active", "probation"])
def test_what_a_person_decided_stays(status):
    assert decide(measured(HARMFUL, HARMFUL, status=status, decided_by_person=True), SETTINGS) is None


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [(-0.1, 0.0, None), (-0.1, -1e-9, "quarantined"), (0.02, 0.1, None), (0.02 + 1e-9, 0.1, "active")],
)
def test_an_interval_that_touches_its_limit_decides_nothing(low, high, status):
    effect = LessonEffect(shown=9, unshown=9, questions=("a", "b", "c"), weight=4.5, low=low, high=high)
    decision = decide(item(effect=effect), ProbationSettings(least_effect=0.02))
    assert (decision.status if decision else None) == status


def test_a_lesson_that_was_never_compared_says_so():
    assert describe_effect(LessonEffect()) == "not measured"


# -- in the bank


def test_a_new_lesson_is_on_probation_and_is_not_retrieved_like_the_others(embedder):
    bank = open_bank(embedder)
    written = bank.write(make_reflection("at 20"))
    assert written.status == "probation"
    assert bank.retrieve("at 0", "cross") == ()
    assert bank.retrieve("at 20", "within") == ()
    assert numbers(bank.retrieve_on_probation("at 0", "cross")) == [written.id]
    assert numbers(bank.retrieve_on_probation("at 20", "within")) == [written.id]
    assert len(bank) == 1


def test_without_probation_a_lesson_is_admitted_at_once_and_nothing_is_measured(embedder):
    bank = open_bank(embedder, None)
    assert bank.write(make_reflection("at 20")).status == "active"
    assert bank.retrieve_on_probation("at 0", "cross") == ()
    assert bank.record_scores("at 0", HARMFUL) == ()
    assert bank.item(1).effect == LessonEffect()


def test_as_many_as_at_once_are_tried_the_nearest_first(embedder):
    bank = open_bank(embedder)
    for degrees in (80, 40, 20):
        bank.write(make_reflection(f"at {degrees}"))
    assert numbers(bank.retrieve_on_probation("at 0", "cross")) == [3, 2]


def test_an_admitted_lesson_stays_until_its_successor_is_admitted_too(embedder):
    bank = open_bank(embedder)
    old = bank.write(make_reflection("at 20", takeaways="Search the ruling."))
    for number in range(3):
        bank.record_scores(f"at {number}", HELPFUL)
    new = bank.write(make_reflection("at 20", takeaways="Search the newest edition."))
    assert (bank.item(old.id).status, bank.item(new.id).status) == ("active", "probation")
    assert numbers(bank.retrieve("at 20", "within")) == [old.id]
    for number in range(3):
        bank.record_scores(f"at {number}", group(([new.id], 0.9), ([new.id], 0.8), ([], 0.2), ([], 0.1)))
    assert (bank.item(old.id).status, bank.item(new.id).status) == ("superseded", "active")


def test_a_newer_lesson_of_a_question_takes_the_place_of_the_one_on_probation(embedder):
    bank = open_bank(embedder)
    bank.write(make_reflection("at 20", takeaways="Search the ruling."))
    bank.write(make_reflection("at 20", takeaways="Search the newest edition."))
    assert [stored.status for stored in bank.items()] == ["superseded", "probation"]


def test_scores_quarantine_a_lesson_and_its_text_does_not_come_back(embedder):
    bank = open_bank(embedder)
    text = "Prefer the older edition."
    bank.write(make_reflection("at 20", takeaways=text))
    changed = bank.record_scores("at 0", HARMFUL)
    assert [(stored.id, stored.status) for stored in changed] == [(1, "quarantined")]
    assert bank.retrieve_on_probation("at 0", "cross") == ()
    for question in ("at 20", "at 60"):
        refused = bank.write(make_reflection(question, takeaways=text.upper()))
        assert isinstance(refused, Refusal)
        assert refused.code == "quarantined_before"
    bank.change(1, "active")
    assert not isinstance(bank.write(make_reflection("at 60", takeaways=text)), Refusal)


def test_scores_after_the_quarantine_change_nothing(embedder):
    bank = open_bank(embedder)
    bank.write(make_reflection("at 20"))
    for number in range(2):
        bank.record_scores(f"at {number}", HARMFUL)
    before = bank.item(1)
    assert bank.record_scores("at 5", HELPFUL) == ()
    assert bank.item(1) == before


def test_scores_of_a_lesson_that_was_withdrawn_or_is_unknown_leave_those_of_the_others(embedder):
    bank = open_bank(embedder)
    for degrees in (20, 40):
        bank.write(make_reflection(f"at {degrees}"))
    bank.change(1, "removed")
    seen = [GuidedScore(frozenset([0, 1, 2]), 0.6), GuidedScore(frozenset([0, 1]), 0.5)]
    assert numbers_of(bank.record_scores("at 0", seen)) == [2]


def test_what_scores_change_without_a_decision_leaves_status_and_reason(embedder):
    bank = open_bank(embedder)
    bank.write(make_reflection("at 20"))
    bank.change(1, "active", "it is good")
    (changed,) = bank.record_scores("at 0", LEVEL)
    assert (changed.status, changed.reason, changed.effect.shown) == ("active", "it is good", 2)


def test_scores_and_age_leave_what_another_process_has_decided(embedder):
    store = MemoryStore(embedder="plane", dimension=2)
    banks = [RubricBank(store, embedder, probation=SETTINGS, settings=RetrievalSettings(max_age=1)) for _ in range(2)]
    here, there = banks
    for degrees in (20, 40):
        here.write(make_reflection(f"at {degrees}"))
    there.change(1, "quarantined", "poison")
    assert here.record_scores("at 0", HELPFUL) == ()
    there.change(2, "active", "good")
    here.retire(9)
    assert [(stored.status, stored.reason) for stored in there.items()] == [
        ("quarantined", "poison"),
        ("active", "good"),
    ]


def test_a_successor_is_seen_as_such_by_another_process(embedder):
    store = MemoryStore(embedder="plane", dimension=2)
    here, there = RubricBank(store, embedder), RubricBank(store, embedder)
    for takeaways in ("Search the ruling.", "Search the newest edition."):
        here.write(make_reflection("at 20", takeaways=takeaways))
        assert there.items() == here.items()


def test_a_person_overrides_and_scores_no_longer_decide(embedder):
    bank = open_bank(embedder)
    bank.write(make_reflection("at 20"))
    bank.change(1, "active")
    for number in range(4):
        bank.record_scores(f"at {number}", HARMFUL)
    assert bank.item(1).status == "active"
    assert bank.item(1).effect.high < 0  # it is shown, and decides nothing


def test_effects_outlive_the_process_and_another_bank_sees_them(embedder, tmp_path):
    store = MemoryStore(embedder="plane", dimension=2)
    bank = RubricBank(store, embedder, probation=SETTINGS)
    bank.write(make_reflection("at 20"))
    other = RubricBank(store, embedder, probation=SETTINGS)
    bank.record_scores("at 0", HARMFUL)
    assert other.item(1).effect == bank.item(1).effect
    save_snapshot(bank, tmp_path / "bank.npz", step=4)
    again = open_bank(embedder)
    load_snapshot(again, tmp_path / "bank.npz", step=4)
    assert again.items() == bank.items()
    bank.record_scores("at 3", HARMFUL)
    again.record_scores("at 3", HARMFUL)
    assert again.items() == bank.items()


def test_what_a_person_withdrew_stays_withdrawn_when_an_older_snapshot_is_restored(embedder, tmp_path):
    bank = open_bank(embedder, None)
    bank.write(make_reflection("at 20"))
    save_snapshot(bank, tmp_path / "bank.npz", step=4)
    bank.change(1, "quarantined", "wrong")
    load_snapshot(bank, tmp_path / "bank.npz", step=4)
    assert (bank.item(1).status, bank.item(1).reason) == ("quarantined", "wrong")


def test_what_scores_withdrew_is_as_it_was_when_an_older_snapshot_is_restored(embedder):
    bank = open_bank(embedder)
    bank.write(make_reflection("at 20"))
    saved = bank.contents()
    for number in range(2):
        bank.record_scores(f"at {number}", HARMFUL)
    assert bank.item(1).status == "quarantined"
    bank.restore(saved)
    assert bank.items() == (saved[0].item,)


@pytest.mark.parametrize(("takeaways", "status"), [("Trust blogs.", "quarantined"), ("Trust rulings.", "active")])
def test_a_restore_withholds_what_a_person_withheld_and_no_other_text_of_its_number(embedder, takeaways, status):
    bank, other = open_bank(embedder, None), open_bank(embedder, None)
    bank.write(make_reflection("at 20", takeaways="Trust blogs."))
    bank.change(1, "quarantined", "wrong")
    other.write(make_reflection("at 20", takeaways=takeaways))
    bank.restore(other.contents())
    assert (bank.item(1).status, bank.item(1).decided_by_person) == (status, status == "quarantined")


def test_a_restore_takes_in_what_another_process_has_withheld_meanwhile(embedder):
    store = MemoryStore(embedder="plane", dimension=2)
    here, there = RubricBank(store, embedder), RubricBank(store, embedder)
    here.write(make_reflection("at 20"))
    saved = here.contents()
    there.change(1, "quarantined", "poison")
    here.restore(saved)
    assert here.item(1).status == "quarantined"


# -- radius and age


def test_a_lesson_reaches_only_questions_that_are_similar_enough(embedder):
    bank = open_bank(embedder, None, settings=RetrievalSettings(least_similarity=0.5))
    bank.write(make_reflection("at 0"))
    assert numbers(bank.retrieve("at 59", "cross")) == [1]
    assert bank.retrieve("at 61", "cross") == ()
    assert numbers(bank.retrieve("at 0", "within")) == [1]


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"near_duplicate": 1.0}, []),
        ({"near_duplicate": 1.01, "least_similarity": 1.0}, [1]),
    ],
)
def test_the_limits_of_similarity_belong_to_what_is_shown_from_and_left_out_from_them_on(embedder, settings, found):
    bank = open_bank(embedder, None, settings=RetrievalSettings(**settings))
    bank.write(make_reflection("at 0.0"))
    assert numbers(bank.retrieve("at 0", "cross")) == found


def aged(question, step):
    return make_reflection(question).model_copy(update={"provenance": Provenance(step=step)})


def test_a_lesson_that_is_too_old_is_withdrawn_unless_a_person_approved_it(embedder):
    bank = open_bank(embedder, None, settings=RetrievalSettings(max_age=10))
    for degrees, step in ((0, 1), (20, 2), (40, 8)):
        bank.write(aged(f"at {degrees}", step))
    bank.change(2, "active")
    bank.retire(11)
    assert len(bank) == 3
    bank.retire(13)
    assert [stored.status for stored in bank.items()] == ["superseded", "active", "active"]
    assert bank.item(1).reason == "older than 10 steps"


def test_questions_are_counted_by_their_keys(embedder):
    bank = open_bank(embedder)
    bank.write(make_reflection("at 20"))
    bank.record_scores("at 0", LEVEL)
    assert bank.item(1).effect.questions == (query_key("at 0"),)
