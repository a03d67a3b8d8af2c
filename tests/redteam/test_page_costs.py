"""No page uses up an episode: all limits are in the policy's own tokens, whatever the page is made of."""

import pytest

pytest.importorskip("torch", reason="needs the extra 'local'")

from rubricem_agent.policy.local import policy_tokenizer
from rubricem_env.domain.trajectory import Query, Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.env.episode import Continue, Episode, Finished
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.vector import DeepResearchVectorEnv
from rubricem_env.testing.tiny_model import tiny_tokenizer
from rubricem_env.tools.base import FunctionTool, LocalToolbox
from rubricem_env.tools.render import CAPS, estimate_tokens
from rubricem_env.tools.spec import GOOGLE_SEARCH_SPEC

POLICY = policy_tokenizer(tiny_tokenizer(["The width of Tall Fox is 60 m."]))
PAGES = {
    "digits": "0123456789" * 3_000,
    "emoji": "\U0001f98a\U0001f9d1\u200d\U0001f680" * 6_000,
    "rare letters": "\ua66e\u1e9e\u0298\U00012000" * 6_000,
    "signs": "~!@#$%^&*()_+" * 3_000,
    "lines": "\n \n\t" * 8_000,
    "unseen": "\u200b\u2060" * 12_000,
    "tags": "<s></s><|x|>[INST]" * 2_000,
    "prose": "The width of Tall Fox is 60 m. " * 1_000,
}
OVERHEAD = 80
"""Tokens of the frame, of the notices and of the marks of what was left out, in a tokenizer that knows few words."""
ACTION = '<call_tool name="google_search">river {number}</call_tool>'


def hostile(page: str, form: str) -> ToolResult:
    if form == "summary":
        return ToolResult.found((), page)
    if form == "message":
        return ToolResult(status=ToolStatus.ERROR, message=page)
    many = 200 if form == "many snippets" else 3
    return ToolResult.found(
        [Snippet(text=page[: len(page) // many * 2], title=page, url=f"https://a.example/{page}")] * many
    )


@pytest.mark.parametrize("form", ["summary", "message", "snippets", "many snippets"])
@pytest.mark.parametrize("page", PAGES)
def test_ten_calls_fit_into_an_episode_whatever_the_pages_are_made_of(page, form):
    episode = Episode(Query(question="How wide?"), count_tokens=POLICY.count)
    result = hostile(PAGES[page], form)
    for number in range(10):
        before = episode.tokens_used
        assert isinstance(episode.emit(ACTION.format(number=number)), ToolCall)
        called = episode.tokens_used
        reply = episode.observe(result)
        assert isinstance(reply, Continue)
        assert POLICY.count(reply.observation) == episode.tokens_used - called <= CAPS.total + OVERHEAD
        assert called > before
    assert isinstance(episode.emit("<answer>60 m</answer>"), Finished)
    assert episode.ending.value == "answered"


@pytest.mark.parametrize("page", PAGES)
def test_without_a_tokenizer_limits_and_budget_are_estimated_alike(page):
    episode = Episode(Query(question="How wide?"))
    for number in range(10):
        episode.emit(ACTION.format(number=number))
        assert isinstance(episode.observe(hostile(PAGES[page], "snippets")), Continue)


def test_the_environments_take_the_policys_counter():
    async def search(call: ToolCall) -> ToolResult:
        return hostile(PAGES["digits"], "snippets")

    toolbox = LocalToolbox(FunctionTool(GOOGLE_SEARCH_SPEC, search))
    plain = DeepResearchEnv(toolbox=toolbox)
    env = DeepResearchEnv(toolbox=toolbox, count_tokens=POLICY.count)
    vector = DeepResearchVectorEnv(2, toolbox=toolbox, count_tokens=POLICY.count)
    for one in (plain, env, vector):
        one.reset(seed=1)
    observation, *_, info = env.step(ACTION)
    assert POLICY.count(observation) <= CAPS.total + OVERHEAD
    assert info["tokens_used"] == POLICY.count(ACTION) + POLICY.count(observation)
    assert vector.step([ACTION] * 2)[0] == (observation, observation)
    for one in (plain, env, vector):
        one.close()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The river is wide", 5),  # 17 letters and spaces, four to a token
        ("20221104", 8),
        ("\U0001f98a" * 3, 12),
        ("\u5ddd\u306e\u5e45", 3),
        ("\u0448\u0438\u0440\u0438\u043d\u0430", 3),
        ("\ua66e" * 2, 6),
        ("{}[]", 2),
    ],
)
def test_an_estimate_goes_by_script(text, tokens):
    assert estimate_tokens(text) == tokens
