from rubricem_agent.policy.drafts import Drafts


def test_a_draft_is_what_followed_the_longest_same_beginning_last():
    drafts = Drafts(3)
    drafts.learn([1, 2, 3, 4, 5, 9, 3, 4, 6], 0)
    # After 3, 4 came 6 last; after 2, 3, 4 and one more, 5.
    assert drafts.guess([7, 3, 4])[0] == 6
    assert drafts.guess([1, 2, 3, 4]) == [5, 9, 3]
    # Nothing is known: still as many.
    assert drafts.guess([50]) == [50, 50, 50]


def test_what_was_learnt_long_ago_is_forgotten(monkeypatch):
    monkeypatch.setattr("rubricem_agent.policy.drafts.DRAFT_ENTRIES", 5)
    drafts = Drafts(1)
    for start in range(0, 100, 10):
        drafts.learn(list(range(start, start + 4)), 0)
    assert drafts.guess([90, 91]) == [92]
    assert drafts.guess([0, 1]) == [1]
    assert len(drafts._recent) + len(drafts._older) < 40
