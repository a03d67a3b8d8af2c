import pytest

from rubricem_agent.policy.drafts import Drafts


def test_a_draft_is_what_followed_the_longest_same_beginning_last():
    drafts = Drafts(3)
    drafts.learn([1, 2, 3, 4, 5, 9, 3, 4, 6], 0)
    # After 3, 4 came 6 last; after 2, 3, 4 and one more, 5.
    assert drafts.guess([7, 3, 4])[0] == 6
    assert drafts.guess([1, 2, 3, 4]) == [5, 9, 3]
    # Nothing is known: still as many.
    assert drafts.guess([50]) == [50, 50, 50]


def test_a_guess_counts_when_it_is_decided():
    drafts = Drafts(2)
    drafts.learn([1, 2, 3, 4, 5, 6, 7], 0)
    made = drafts._guesses
    # The guess after 1, 2 is 3, 4: the first is right, the second is not known yet, then it is wrong.
    for ids in ([1, 2], [1, 2, 3], [1, 2, 3, 9]):
        drafts.watch(0, ids, drafts.guess(ids))
        assert drafts._guesses == made + (len(ids) == 4)
    assert [drafts._right[place] - made for place in range(2)] == [1, 0]
    # Two rows are two matters.
    drafts.watch(1, [4, 5], drafts.guess([4, 5]))
    drafts.watch(1, [4, 5, 6, 7], [])
    assert [drafts._right[place] - made for place in range(2)] == [2, 1]


def test_what_is_expected_follows_the_latest_guesses():
    drafts = Drafts(2)
    assert drafts.expected() == [1.0, 2.0, 3.0]
    drafts.learn([1, 2, 3, 4], 0)
    for count, follows, expected in ((5_000, [9, 9], 1.0), (5_000, [3, 9], 2.0), (5_000, [3, 4], 3.0)):
        for _ in range(count):
            drafts.watch(0, [1, 2], [3, 4])
            drafts.watch(0, [1, 2, *follows], [])
        assert drafts.expected()[-1] == pytest.approx(expected, abs=0.02)
    drafts.forget()
    assert drafts.expected() == [1.0, 2.0, 3.0]


def test_what_was_learnt_long_ago_is_forgotten(monkeypatch):
    monkeypatch.setattr("rubricem_agent.policy.drafts.DRAFT_ENTRIES", 5)
    drafts = Drafts(1)
    for start in range(0, 100, 10):
        drafts.learn(list(range(start, start + 4)), 0)
    assert drafts.guess([90, 91]) == [92]
    assert drafts.guess([0, 1]) == [1]
    assert len(drafts._recent) + len(drafts._older) < 40
