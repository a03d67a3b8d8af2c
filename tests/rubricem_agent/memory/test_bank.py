"""Retrieval, overwriting, quarantine and tombstones, on questions whose similarity is an angle."""

from contextlib import suppress
from itertools import permutations
from math import cos, radians

import pytest
from hypothesis import given, strategies as st

from rubricem_agent.memory.bank import RetrievalSettings, RubricBank
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.memory.probation import GuidedScore, ProbationSettings
from rubricem_agent.memory.store import MemoryStore
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory import query_key
from rubricem_records.bank.bank_items import BankItem
from tests.fakes import PlaneEmbedder, make_reflection


def numbers(found):
    return [hit.item.id for hit in found]


def open_bank(embedder, **options):
    return RubricBank(MemoryStore(embedder="plane", dimension=2), embedder, **options)


def test_cross_returns_the_two_nearest_other_questions_nearest_first(bank):
    for degrees in (80, 40, 20):
        bank.write(make_reflection(f"at {degrees}"))
    found = bank.retrieve("at 0", "cross")
    assert numbers(found) == [3, 2]
    assert found[0].similarity == pytest.approx(cos(radians(20)), abs=1e-6)


@pytest.mark.parametrize("left_out", ["at 0", "at 11"])
def test_cross_leaves_out_the_question_itself_and_its_near_duplicates(bank, left_out):
    # cos 11 degrees = 0.9816 is a near-duplicate, cos 12 degrees = 0.9781 is not.
    bank.write(make_reflection(left_out))
    bank.write(make_reflection("at 12"))
    assert numbers(bank.retrieve("at 0", "cross")) == [2]


def test_many_near_duplicates_do_not_crowd_out_what_lies_behind_them(bank):
    for tenth in range(60):
        bank.write(make_reflection(f"at {tenth / 10}"))
    bank.write(make_reflection("at 30"))
    assert numbers(bank.retrieve("at 0.05", "cross")) == [61]


def test_equally_similar_items_come_in_one_order_whichever_thread_wrote_first(embedder):
    found = set()
    # All three have the cosine of 30 degrees.
    for written in permutations((330, 30, -30)):
        bank = open_bank(embedder)
        for degrees in written:
            bank.write(make_reflection(f"at {degrees}"))
        found.add(tuple(hit.item.reflection.question for hit in bank.retrieve("at 0", "cross")))
    assert found == {tuple(sorted(("at 330", "at 30", "at -30"), key=query_key)[:2])}


def test_an_empty_bank_offers_nothing(bank):
    assert bank.retrieve("at 0", "cross") == ()
    assert bank.retrieve("at 0", "within") == ()


def test_within_finds_the_question_by_its_key_alone(bank):
    bank.write(make_reflection("at 0"))
    assert numbers(bank.retrieve("  at 0\n", "within")) == [1]
    assert bank.retrieve("at 0.001", "within") == ()


def test_a_new_reflection_replaces_the_earlier_one_of_its_question(bank):
    bank.write(make_reflection("at 0", takeaways="old"))
    bank.write(make_reflection("at 0", takeaways="new"))
    assert [hit.item.reflection.takeaways for hit in bank.retrieve("at 0", "within")] == ["new"]
    assert [item.status for item in bank.history(query_key("at 0"))] == ["superseded", "active"]
    assert len(bank) == 1


def test_a_late_reflection_replaces_nothing_and_is_stored_as_history(bank):
    bank.write(make_reflection("at 0", takeaways="new", step=7))
    late = bank.write(make_reflection("at 0", takeaways="old", step=1), is_late=True)
    assert isinstance(late, BankItem)
    assert late.status == "superseded"
    assert [hit.item.reflection.takeaways for hit in bank.retrieve("at 0", "within")] == ["new"]
    assert bank.history(query_key("at 0"))[-1] == late


@pytest.mark.parametrize("mode", ["cross", "within"])
@pytest.mark.parametrize("status", ["quarantined", "removed"])
def test_a_quarantined_or_removed_item_is_never_retrieved_nor_the_one_before_it(bank, mode, status):
    bank.write(make_reflection("at 0", takeaways="old"))
    bank.write(make_reflection("at 0", takeaways="new"))
    bank.change(2, status, "poison")
    assert bank.retrieve("at 0" if mode == "within" else "at 40", mode) == ()


@pytest.mark.parametrize(
    "again", ["Trust  blog\nposts.", "- trust blog posts", "trust_blog-posts", "tru\u0455t bl\u00f6g posts"]
)
def test_a_removed_text_is_refused_when_it_comes_back_in_another_form(bank, again):
    bank.write(make_reflection("at 0", takeaways="trust blog posts"))
    bank.change(1, "removed", "poison")
    refused = bank.write(make_reflection("at 9", takeaways=again))
    assert isinstance(refused, Refusal)
    assert refused.code == "removed_before"


def test_a_moderated_bank_offers_nothing_before_approval(embedder):
    bank = open_bank(embedder, is_moderated=True)
    assert bank.write(make_reflection("at 0")).reason == "waits for approval"
    assert bank.retrieve("at 0", "within") == ()
    bank.change(1, "active")
    assert numbers(bank.retrieve("at 0", "within")) == [1]


def test_an_approved_item_replaces_the_active_one(embedder):
    bank = open_bank(embedder, is_moderated=True)
    for takeaways in ("old", "new"):
        bank.write(make_reflection("at 0", takeaways=takeaways))
    bank.change(1, "active")
    bank.change(2, "active")
    assert [item.status for item in bank.items()] == ["superseded", "active"]


def test_a_removed_item_cannot_be_approved(bank):
    bank.write(make_reflection("at 0"))
    bank.change(1, "removed", "poison")
    with pytest.raises(UsageError, match="item 1 is removed; only one that is active, on probation or in quarantine"):
        bank.change(1, "active")


def test_an_unknown_number_is_refused_with_the_way_out(bank):
    with pytest.raises(UsageError, match="no item 7; `rubricem bank list --all`"):
        bank.change(7, "removed", "")


def test_a_bank_of_another_embedder_is_refused(embedder):
    with pytest.raises(FileFormatError, match=r"holds vectors of other .* export its items and import them"):
        RubricBank(MemoryStore(embedder="other", dimension=2), embedder)


def test_top_k_is_a_setting(embedder):
    bank = open_bank(embedder, settings=RetrievalSettings(top_k=3))
    for degrees in (20, 40, 60, 80):
        bank.write(make_reflection(f"at {degrees}"))
    assert numbers(bank.retrieve("at 0", "cross")) == [1, 2, 3]


def test_a_store_gives_only_what_was_written_after_a_revision(embedder):
    store = MemoryStore(embedder="plane", dimension=2)
    bank = RubricBank(store, embedder)
    for degrees in (0, 20, 40):
        bank.write(make_reflection(f"at {degrees}"))
    assert [row.item.revision for row in store.changed_since(1)] == [2, 3]


@pytest.mark.parametrize("written", range(4))
def test_a_bank_over_a_store_has_all_its_items(embedder, written):
    store = MemoryStore(embedder="plane", dimension=2)
    first = RubricBank(store, embedder)
    for number in range(written):
        assert first.write(make_reflection(f"at {number}")).reason == ""
    assert len(RubricBank(store, embedder)) == written


def test_revisions_number_the_writes_and_contents_are_those_after_one(bank):
    for degrees in (0, 20, 40):
        bank.write(make_reflection(f"at {degrees}"))
    bank.change(1, "quarantined")
    assert [item.revision for item in bank.items()] == [4, 2, 3]
    assert [row.item.id for row in bank.contents(since=2)] == [1, 3]


def test_the_mark_of_the_state_differs_after_what_another_bank_wrote(embedder):
    store = MemoryStore(embedder="plane", dimension=2)
    here, there = RubricBank(store, embedder), RubricBank(store, embedder)
    before = here.state_mark
    there.write(make_reflection("at 0"))
    assert here.state_mark != before


@pytest.mark.parametrize(
    "look",
    [
        lambda bank: bank.items(),
        lambda bank: bank.contents(),
        lambda bank: bank.history(query_key("at 0")),
        lambda bank: bank.search("at 0", limit=1),
        lambda bank: bank.retrieve("at 0", "within"),
        lambda bank: bank.retrieve("at 40", "cross"),
        lambda bank: bank.item(1),
        lambda bank: bank.refusal(make_reflection("at 40", takeaways="Trust blogs.")),
    ],
)
def test_each_look_sees_what_another_bank_has_just_done(embedder, look):
    store = MemoryStore(embedder="plane", dimension=2)
    here, there = RubricBank(store, embedder), RubricBank(store, embedder)
    there.write(make_reflection("at 0", takeaways="Trust blogs."))
    there.write(make_reflection("at 80"))
    there.change(2, "removed")
    if look(there) is None:
        there.change(1, "removed")
    found = look(here)
    assert found
    assert str(found) == str(look(there))


def test_search_for_people_shows_the_question_itself_too(bank):
    bank.write(make_reflection("at 0"))
    assert numbers(bank.search("at 0", limit=5)) == [1]


CHANGES = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from(["write", "quarantined", "active", "removed"])), max_size=25
)


@given(CHANGES)
def test_no_history_of_changes_lets_a_question_have_two_active_items_or_offers_one_that_is_not(changes):
    bank = open_bank(PlaneEmbedder())
    for number, change in changes:
        with suppress(UsageError):
            if change == "write":
                bank.write(make_reflection(f"at {number * 20}", takeaways=f"text {len(bank.items())}"))
            else:
                bank.change(number, change)
    active = [item for item in bank.items() if item.is_active]
    assert len({item.key for item in active}) == len(active) == len(bank)
    assert {hit.item.id for hit in bank.search("at 1", limit=99)} == {item.id for item in active}


class GuardedIndex:
    """The bank's index, which may be read and changed by the thread that holds the bank's lock alone."""

    def __init__(self, bank):
        self._index, self._lock = bank._index, bank._lock

    def __getattr__(self, name):
        assert self._lock._is_owned(), f"{name} is used without the lock"
        return getattr(self._index, name)


@pytest.mark.parametrize(
    "use",
    [
        lambda bank: bank.refusal(make_reflection("at 50")),
        lambda bank: bank.write(make_reflection("at 50")),
        lambda bank: bank.retrieve("at 0", "within"),
        lambda bank: bank.retrieve("at 0", "cross"),
        lambda bank: bank.search("at 0", limit=1),
        lambda bank: bank.items(),
        lambda bank: bank.item(1),
        lambda bank: bank.history(query_key("at 0")),
        lambda bank: bank.change(1, "quarantined"),
        lambda bank: bank.contents(),
        lambda bank: bank.state_mark,
        lambda bank: bank.restore(bank.contents()),
        lambda bank: bank.refresh(),
        lambda bank: bank.retire(9),
        lambda bank: bank.retrieve_on_probation("at 0", "cross"),
        lambda bank: bank.record_scores("at 0", [GuidedScore(frozenset([1]), 0.5), GuidedScore(frozenset(), 0.5)]),
    ],
)
def test_everything_that_reads_or_writes_items_holds_the_lock(embedder, use):
    store = MemoryStore(embedder="plane", dimension=2)
    bank = RubricBank(store, embedder, probation=ProbationSettings(), settings=RetrievalSettings(max_age=1))
    RubricBank(store, embedder).write(make_reflection("at 0"))
    bank._index = GuardedIndex(bank)
    use(bank)


def test_what_another_bank_on_the_store_has_removed_is_refused_here_before_anything_is_written(embedder):
    store = MemoryStore(embedder="plane", dimension=2)
    here, there = RubricBank(store, embedder), RubricBank(store, embedder)
    item = there.write(make_reflection("at 0"))
    assert here.refusal(make_reflection("at 0")) is None
    there.change(item.id, "removed")
    assert here.refusal(make_reflection("at 0")) is not None
