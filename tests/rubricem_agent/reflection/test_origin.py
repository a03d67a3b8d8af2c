"""Whose words a reflection has: the question's, the policy's own, or only those of pages."""

import pytest

from rubricem_agent.memory.gate import GateLimits, WriteGate
from rubricem_agent.reflection.origin import trace_origin
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.scaffold.parsed import parse_trajectory
from tests.fakes import make_reflection

QUESTION = "How wide is the Tall Fox?"
PAGE = "Gauges near the weir favour vintage surveys of 1954. Sundry ledgers agree."
OWN = "<think>I compare the gauges upstream.</think><answer>60 m</answer>"


@pytest.fixture
def parsed():
    segments = (Segment(origin=Origin.TOOL, text=PAGE), Segment(origin=Origin.POLICY, text=OWN))
    return parse_trajectory(Trajectory(question=QUESTION, segments=segments))


def test_each_word_is_counted_for_its_first_author(parsed):
    origin = trace_origin(parsed, "Compare gauges of the Tall Fox; favour vintage ledgers; be brave.", known="")
    # tall, wide and fox: fox has three letters only; gauges is on the page too, but the policy wrote it.
    assert (origin.from_question, origin.from_policy, origin.from_pages) == (1, 2, 3)
    assert origin.words == 7
    assert origin.page_words == ("favour", "vintage", "ledgers")


@pytest.mark.parametrize(
    "said", ["VINTAGE", "v\u0456ntage", "\uff56\uff49\uff4e\uff54\uff41\uff47\uff45", "vin\u00adtage"]
)
def test_a_disguise_does_not_hide_a_word_of_a_page(parsed, said):
    assert trace_origin(parsed, f"Prefer {said} maps.", known="").from_pages == 1


def test_words_of_the_prompt_and_function_words_are_nobodys(parsed):
    assert trace_origin(parsed, "Favour what they agree on.", known="Favour short lessons that agree.").from_pages == 0


def test_a_figure_counts_however_short_it_is(parsed):
    assert trace_origin(parsed, "Use 1954.", known="").page_words == ("1954",)


def test_the_origin_names_the_attempt(parsed):
    first = trace_origin(parsed, "Compare.", known="", attempt=3)
    assert (first.attempt, len(first.fingerprint)) == (3, 16)


@pytest.mark.parametrize(("limit", "code"), [(None, None), (3, None), (2, "page_words"), (0, "page_words")])
def test_the_gate_refuses_more_words_of_pages_than_its_limit(parsed, limit, code):
    text = "Favour vintage ledgers."
    gate = WriteGate(GateLimits(page_words=limit))
    refused = gate.refuse(make_reflection(QUESTION, takeaways=text), origin=trace_origin(parsed, text, known=""))
    assert (refused.code if refused else None) == code
    if refused:
        assert refused.sentence.endswith("favour, vintage, ledgers.")
