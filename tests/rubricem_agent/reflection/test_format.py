"""The two blocks: once each, in order, with something in them, nothing beside them."""

import pytest
from hypothesis import given, strategies as st

from rubricem_agent.memory.gate import Refusal
from rubricem_agent.reflection.candidates import parse_blocks

R = "<reflection_rubrics>r</reflection_rubrics>"
T = "<reflection_takeaways>t</reflection_takeaways>"


@pytest.mark.parametrize(
    "text", [R + T, f"\n{R}\n\n{T}\n", f"<think>why <b> not</think>\n{R}{T}", R.replace("r<", " r\n<") + T]
)
def test_both_blocks_in_order_are_a_reflection(text):
    assert parse_blocks(text) == ("r", "t")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "<reflection_rubrics> is missing"),
        (T, "<reflection_rubrics> is missing"),
        (R, "<reflection_takeaways> is missing"),
        (R + T[:-5], "</reflection_takeaways> is missing"),
        (R + R + T, "<reflection_rubrics> occurs 2 times"),
        (T + R, "more than"),
        (R + T + "Hope this helps!", "more than"),
        ("Here it is:" + R + T, "more than"),
        (R + "and" + T, "more than"),
        (R + "<think>late</think>" + T, "more than"),
        ("<think>one</think><think>two</think>" + R + T, "more than"),
        (f"<think>{R}</think>{T}", "more than"),
        ("<reflection_rubrics>r<reflection_takeaways>t</reflection_takeaways></reflection_rubrics>", "more than"),
        ("<reflection_rubrics> \n</reflection_rubrics>" + T, "<reflection_rubrics> is empty"),
        (R + "<reflection_takeaways></reflection_takeaways>", "<reflection_takeaways> is empty"),
    ],
)
def test_anything_else_is_refused_for_its_form(text, said):
    refusal = parse_blocks(text)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "format"
    assert said in refusal.sentence


@given(st.lists(st.sampled_from([R, T, "<think>", "</think>", "x", " ", R[:20], T[-24:], "<answer>"]), max_size=8))
def test_no_text_makes_it_raise(parts):
    found = parse_blocks("".join(parts))
    assert isinstance(found, Refusal) or found == ("r", "t")
