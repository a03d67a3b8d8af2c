"""A hundred calls in the almanac: view and cost stay bounded, and no fact is lost to a policy that weighs it."""

import re
import tracemalloc

import pytest

from rubricem_env.domain.trajectory import Ending, Query, Snippet, ToolCall, ToolResult
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.step import advance
from rubricem_env.env.view import views_of
from rubricem_env.tools.render import estimate_tokens
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.offline import shipped_toolbox

FOUND = ToolResult.found([Snippet(title="Page", text="word " * 200)] * 3)
LIMITS = EpisodeLimits(max_calls=110, max_turns=120, max_tokens=1_000_000)
CONTEXT = ContextLimits(fold_at=8_000, fold_to=4_000, keep=3)
SNIPPET = re.compile(r'<snippet id="(S_\d+)">(.*?)</snippet>', re.DOTALL)


def subjects(count):
    """What to look up in the almanac, one a call."""
    names = dict.fromkeys(
        name
        for question in load_questions(shipped_questions_path())
        for name in re.findall(r"[A-Z][a-z]+ [A-Z][a-z]+", question.question)
    )
    return [f"{name} {fact}" for fact in ("width", "height") for name in names][:count]


async def research(names, context=CONTEXT):
    """Looks each name up, and weighs in a few words what was found; it knows nothing but what it reads."""
    episode = Episode(Query(question="How wide are the rivers?"), limits=LIMITS, context=context)
    toolbox = shipped_toolbox()
    sizes, noted = [], []
    weighed = ""
    for name in names:
        reply = await advance(episode, toolbox, f'{weighed}<call_tool name="google_search">{name}</call_tool>')
        snippet_id, body = SNIPPET.findall(reply.observation)[0]
        noted.append((name, snippet_id, " ".join(body.split())[:30]))
        weighed = "<state_evaluation>{}: {} {}</state_evaluation>".format(*noted[-1])
        sizes.append(estimate_tokens(episode.view.text))
    return episode, sizes, noted


async def test_every_fact_of_a_hundred_calls_is_in_eight_thousand_tokens_or_one_call_away():
    names = subjects(100)
    assert len(names) == 100
    episode, sizes, noted = await research(names)
    assert max(sizes) <= 8_000 < episode.tokens_used // 2
    read = episode.view.text
    for name, snippet_id, words in noted[:-1]:
        assert f"<state_evaluation>{name}: {snippet_id} {words}</state_evaluation>" in read
    # The first page is no longer read in full; the same call brings it back, under a new id.
    first, _, words = noted[0]
    assert f'<snippet id="{noted[0][1]}">' not in read
    reply = await advance(episode, shipped_toolbox(), f'<call_tool name="google_search">{first}</call_tool>')
    assert words in " ".join(reply.observation.split())
    episode.emit(f'<answer><cite id="{noted[0][1]}">as noted</cite></answer>')
    parsed = episode.read()
    assert (parsed.trajectory.ending, parsed.citations.unknown) == (Ending.ANSWERED, ())
    assert [view.text for view in views_of(parsed.trajectory)][-1] == episode.view.text


async def test_memory_grows_with_the_record_alone():
    names = subjects(100)
    await research(names[:10])
    held = []
    for count in (50, 100):
        tracemalloc.start()
        episode, _, _ = await research(names[:count])
        held.append(tracemalloc.get_traced_memory()[0] / len(episode.trajectory.segments))
        tracemalloc.stop()
    # Bytes for each segment: twice the calls take twice the memory, and no copy of a view is kept.
    assert held[1] == pytest.approx(held[0], rel=0.35)


def test_a_fold_reads_each_turn_once_however_many_folds_there_are():
    counted = []

    def count(text):
        counted.append(len(text))
        return estimate_tokens(text)

    episode = Episode(Query(question="q"), limits=LIMITS, context=CONTEXT, count_tokens=count)
    for number in range(100):
        assert isinstance(episode.emit(f'<call_tool name="google_search">{number}</call_tool>'), ToolCall)
        episode.observe(FOUND)
    # What is counted: the record once, each folded turn once, and a view for each fold.
    record = sum(len(segment.text) for segment in episode.trajectory.segments)
    views = len(episode.folds) * 6 * 8_000 * 4
    assert sum(counted) < 3 * record + views
