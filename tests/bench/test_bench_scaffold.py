"""Reading a trajectory (parse, validate, boundaries, citations) against lxml parsing the same text as HTML.

Side by side in one run; lxml builds a tree and knows no stages, so it is a yardstick for speed alone.
"""

import timeit

import lxml.html
import pytest

from rubricem_env.domain.trajectory import Observation, Origin, Segment, ToolStatus, Trajectory
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.scaffold.parser import parse_turn

SENTENCE = "The reported figure differs between the two editions, and the later one says 41 km, which a note confirms. "
SEARCHES = 9


def policy_turns(sentences: int) -> list[str]:
    """Eleven turns by the book; each longer part has this many sentences."""
    part = SENTENCE * sentences
    plan = f"<deep_analysis>{part}</deep_analysis><rubric>{part}</rubric><research_plan>{part}</research_plan>"
    call = '<call_tool name="google_search">river length</call_tool>'
    state = f"<think>{part}</think><state_evaluation>{part}</state_evaluation>"
    review = f"<review><rubric_review>{part}</rubric_review><writing_plan>{part}</writing_plan></review>"
    claims = "".join(f'<cite id="S_{number % 9 + 1}">{SENTENCE}</cite> ' for number in range(4 * sentences))
    first = f"<think>{part}</think><structured_plan>{plan}</structured_plan>{call}"
    return [first, *[state + call] * SEARCHES, f"{state}{review}<answer>{claims}</answer>"]


def tool_output(first: int, size: int) -> str:
    snippets = "\n".join(f'<snippet id="S_{first + place}">{SENTENCE * size}</snippet>' for place in range(5))
    return f"<tool_output>\n{snippets}\n</tool_output>"


def trajectory(sentences: int, page_sentences: int) -> Trajectory:
    segments = []
    for place, text in enumerate(policy_turns(sentences)):
        segments.append(Segment(origin=Origin.POLICY, text=text))
        if place <= SEARCHES and page_sentences:
            ids = tuple(f"S_{place * 5 + number}" for number in range(5))
            shown = Observation(status=ToolStatus.OK, snippet_ids=ids)
            output = tool_output(place * 5, page_sentences)
            segments.append(Segment(origin=Origin.TOOL, text=output, observation=shown))
    return Trajectory(question="How long is the river?", segments=tuple(segments))


def whole_text(record: Trajectory) -> str:
    return "".join(segment.text for segment in record.segments)


# Sentences are 107 characters: 29 parts of 30 sentences and 120 citations make 109 kB of policy text;
# 50 snippets of 14 sentences and parts of 7 sentences make 104 kB, most of it the tools'.
KINDS = {"policy text only": trajectory(30, 0), "whole trajectory": trajectory(7, 14)}


@pytest.fixture(params=KINDS)
def record(request: pytest.FixtureRequest) -> Trajectory:
    assert 90_000 < len(whole_text(KINDS[request.param])) < 120_000
    return KINDS[request.param]


def test_our_parsing(benchmark, record):
    benchmark.group = f"{len(whole_text(record)) // 1000} kB, {len(record.policy_text) // 1000} kB of it the policy's"
    assert benchmark(parse_trajectory, record).is_complete


def test_lxml_parsing_the_same_text(benchmark, record):
    benchmark.group = f"{len(whole_text(record)) // 1000} kB, {len(record.policy_text) // 1000} kB of it the policy's"
    assert benchmark(lxml.html.fromstring, whole_text(record)) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_twice_the_text_takes_at_most_2_2_times_as_long(benchmark, kind):
    once = KINDS[kind]
    twice = Trajectory(question="q", segments=once.segments * 2)
    seconds = {1: best_of(parse_trajectory, once), 2: best_of(parse_trajectory, twice)}
    benchmark.extra_info["ratio"] = seconds[2] / seconds[1]
    benchmark.pedantic(parse_trajectory, args=(twice,), rounds=20)
    assert seconds[2] / seconds[1] <= 2.2


@pytest.mark.parametrize("unit", ["<", "<answer", "</answer>", "<review>"])
def test_a_megabyte_of_brackets_is_linear(benchmark, unit):
    half, full = (unit * (size // len(unit)) for size in (500_000, 1_000_000))
    ratio = best_of(parse_turn, full, rounds=8) / best_of(parse_turn, half, rounds=16)
    benchmark.extra_info["ratio"] = ratio
    benchmark.pedantic(parse_turn, args=(full,), rounds=3)
    assert ratio < 3.2  # linear is 2, quadratic is 4, and the machines are noisy


def best_of(function, argument, rounds: int = 30) -> float:
    """The shortest of some runs, in seconds: what the work itself takes, without the garbage collector's."""
    return min(timeit.repeat(lambda: function(argument), repeat=rounds, number=1))
