"""The reference block: its place, its wording, its budget."""

import pytest
from hypothesis import given, strategies as st

from rubricem_agent.memory.inject import Injector, ReferenceSettings
from rubricem_records.bank.bank_items import BankItem, Retrieved
from tests.fakes import make_reflection


def found(number, similarity, question="Other?"):
    item = BankItem(id=number, revision=number, reflection=make_reflection(question, takeaways=f"lesson {number}"))
    return Retrieved(item, similarity)


def count_lessons(text):
    """A budget in lessons, so that what fits is known by hand."""
    return text.count("### Rubrics")


def test_nothing_found_is_no_block():
    assert Injector(count_tokens=len).render([], "cross") == ("", ())


@pytest.mark.parametrize("mode", ["cross", "within"])
def test_the_block_has_its_tags_around_it(mode):
    block, _ = Injector(count_tokens=len).render([found(1, 0.5)], mode)
    assert block.startswith("<reference_examples>\n")
    assert block.endswith("\n</reference_examples>")


def test_cross_shows_each_question_with_its_lessons_most_similar_first():
    block, _ = Injector(count_tokens=len).render([found(1, 0.2, "Far?"), found(2, 0.9, "Near?")], "cross")
    _, first, second = block.split("## Similar question")
    assert first.split("\n")[:2] == [" 1", "Near?"]
    assert second.split("\n")[:2] == [" 2", "Far?"]
    assert "lesson 2" in first
    assert "lesson 1" in second


def test_equally_similar_lessons_stand_in_the_order_of_their_keys():
    lessons = [found(number, 0.5, f"Question {number}?") for number in range(1, 5)]
    _, shown = Injector(count_tokens=len).render(lessons, "cross")
    assert [hit.item.key for hit in shown] == sorted(hit.item.key for hit in lessons)
    assert [hit.item.id for hit in shown] != [1, 2, 3, 4]


def test_each_mode_has_its_preamble_and_within_does_not_repeat_the_question():
    cross, _ = Injector(count_tokens=len).render([found(1, 0.5, "What?")], "cross")
    within, _ = Injector(count_tokens=len).render([found(1, 1.0, "What?")], "within")
    assert "What?" in cross
    assert "What?" not in within
    assert cross.split("\n")[1] != within.split("\n")[1]


def test_the_budget_drops_the_least_similar_first():
    injector = Injector(count_tokens=count_lessons, budget=1)
    _, shown = injector.render([found(1, 0.2), found(2, 0.9), found(3, 0.5)], "cross")
    assert [hit.item.id for hit in shown] == [2]


@given(st.integers(0, 3_000), st.lists(st.floats(0, 1), max_size=4))
def test_the_block_is_never_above_the_budget(budget, similarities):
    hits = [found(number, similarity) for number, similarity in enumerate(similarities, start=1)]
    block, shown = Injector(count_tokens=len, budget=budget).render(hits, "cross")
    assert len(block) <= budget
    assert bool(block) == bool(shown)
    assert set(shown) <= set(hits)


def test_lessons_go_to_the_named_share_of_a_group_spread_evenly():
    def guided(share: float, size: int = 8) -> list[int]:
        settings = ReferenceSettings(share=share)
        return [attempt for attempt in range(size) if settings.is_guided(attempt, step=1)]

    assert guided(1.0) == list(range(8))
    assert guided(0.5) == [1, 3, 5, 7]
    assert guided(0.25) == [3, 7]
    assert guided(0.1, size=30) == [9, 19, 29]  # 10 * 0.1 is 1, whatever floats make of it
    assert guided(0.0) == []


def test_the_share_moves_on_a_straight_line_to_its_last_value():
    falling = ReferenceSettings(share=1.0, last_share=0.25, reach=4)
    # 3 steps for 0.75: 0.25 a step
    assert [falling.share_at(step) for step in (1, 2, 3, 4, 9)] == [1.0, 0.75, 0.5, 0.25, 0.25]
    assert ReferenceSettings(share=0.5).share_at(9) == 0.5
