"""An attempt of many calls whose view was folded, with words of a stranger in titles, pages, calls and weighings."""

from rubricem_env.domain.trajectory import Query, Snippet, ToolCall, ToolResult
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits

CONTEXT = ContextLimits(fold_at=6_000, fold_to=3_000, keep=2)


def folded_attempt(calls=100, *, words="", context=CONTEXT):
    """So many calls, each read as a page of 500 tokens, and an answer."""
    limits = EpisodeLimits(max_calls=calls, max_turns=calls + 5, max_tokens=1_000_000)
    episode = Episode(Query(question="What?"), prompt="The prompt.", limits=limits, context=context)
    plan = "<structured_plan><deep_analysis>Look for it.</deep_analysis></structured_plan>"
    for number in range(1, calls + 1):
        state = f"<state_evaluation>E{number} {words}</state_evaluation>" if number > 1 else plan
        call = episode.emit(
            f'<think>T{number} {words}</think>{state}<call_tool name="google_search">Q{number} {words}</call_tool>'
        )
        assert isinstance(call, ToolCall)
        page = Snippet(text="page " * 400 + words, title=f"title {number} {words}", url="https://example.org/x")
        episode.observe(ToolResult.found([page]))
    episode.emit(f'<think>t</think><review>done</review><answer><cite id="S_1">so {words}</cite></answer>')
    return episode.trajectory
