"""Scripted episodes, writers and tools: real episodes without a model, for tests and demos."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.trajectory import Query, Snippet, ToolCall, ToolResult, ToolStatus
from rubricem_env.env.episode import Episode, EpisodeLimits, Finished
from rubricem_env.env.step import advance
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.spec import GOOGLE_SEARCH_SPEC, ToolSpec

_SNIPPET = re.compile(r'<snippet id="(S_\d+)">(.*?)</snippet>', re.DOTALL)


class Search(NamedTuple):
    """One search of the scripted researcher, and its use in the answer."""

    tool: str
    query: str
    claim: str
    """The sentence of the answer."""
    evidence: str
    """Words of the snippet that supports the claim."""
    lesson: str
    """The sentence of the state evaluation after the search."""


_DEMO: Mapping[str, Any] = json.loads(package_text("rubricem_env.testing", "demo.json"))
DEMO_QUERY = Query.model_validate(_DEMO["query"], strict=False)
DEMO_PLAN = "".join(_DEMO["plan"])
DEMO_SEARCHES = tuple(Search(**search) for search in _DEMO["searches"])


class ScriptedResearcher:
    """Plans, makes the given searches, and answers with citations of the snippets that it has read."""

    def __init__(self, plan: str = DEMO_PLAN, searches: Sequence[Search] = DEMO_SEARCHES) -> None:
        self._plan = plan
        self._searches = tuple(searches)
        self._next = 0
        self._shown: list[tuple[str, str]] = []

    def emission(self, observation: str) -> str:
        """The next turn, after reading the observation; the first one is given the prompt."""
        self._shown += _SNIPPET.findall(observation)
        opening = self._plan
        if self._next:
            lesson = self._searches[self._next - 1].lesson
            more = "More is needed." if self._next < len(self._searches) else "The evidence is sufficient."
            opening = f"<think>{lesson}</think><state_evaluation>{lesson} {more}</state_evaluation>"
        if self._next < len(self._searches):
            search = self._searches[self._next]
            self._next += 1
            return f'{opening}<call_tool name="{search.tool}">{search.query}</call_tool>'
        lessons = "; ".join(search.lesson.rstrip(".") for search in self._searches)
        claims = " ".join(self._claim(search) for search in self._searches)
        return (
            f"{opening}<review><rubric_review>{lessons}.</rubric_review>"
            "<writing_plan>State each fact with its source, then the comparison.</writing_plan></review>"
            f"<answer>{claims}</answer>"
        )

    def _claim(self, search: Search) -> str:
        """The claim with its supporting snippet; without one it has no citation."""
        source = next((snippet_id for snippet_id, text in self._shown if search.evidence in text), None)
        return f'<cite id="{source}">{search.claim}</cite>' if source else search.claim


class ListWriter:
    """Writes given turns, then repeats the last one, and records what it reads."""

    def __init__(self, turns: Sequence[str]) -> None:
        self._turns = tuple(turns)
        self.read: list[str] = []

    def emission(self, observation: str) -> str:
        """The next of the turns."""
        self.read.append(observation)
        return self._turns[min(len(self.read), len(self._turns)) - 1]


def writes(*turns: str) -> Callable[[object, int], ListWriter]:
    """For `ScriptedPolicy`: each episode writes the same turns."""
    return lambda opening, seed: ListWriter(turns)


async def play_turns(episode: Episode, toolbox: Toolbox, turn: Callable[[Sequence[str]], str]) -> Episode:
    """Play an episode to its end; `turn` gives the next turn after all that was observed so far."""
    observations: list[str] = []
    reply = await advance(episode, toolbox, turn(observations))
    while not isinstance(reply, Finished):
        observations.append(reply.observation)
        reply = await advance(episode, toolbox, turn(observations))
    return episode


async def run_scripted_episode(
    toolbox: Toolbox, *, query: Query = DEMO_QUERY, limits: EpisodeLimits | None = None, seed: int = 0
) -> Episode:
    """Play the scripted researcher to the end of an episode."""
    episode = Episode(query, limits=limits, seed=seed)
    researcher = ScriptedResearcher()
    reply = await advance(episode, toolbox, researcher.emission(query.question))
    while not isinstance(reply, Finished):
        reply = await advance(episode, toolbox, researcher.emission(reply.observation))
    return episode


FOUND = ToolResult(
    status=ToolStatus.OK,
    summary="The Tall Fox is 60 m wide.",
    snippets=(Snippet(text="60 m", title="Tall Fox", url="https://almanac.example/d1"),),
)


@dataclass
class ScriptedTool:
    """A tool that answers each call with a function."""

    answer: Callable[[ToolCall], ToolResult] = lambda _: FOUND
    spec: ToolSpec = field(default=GOOGLE_SEARCH_SPEC, kw_only=True)
    delay: float = field(default=0.0, kw_only=True)
    calls: list[ToolCall] = field(default_factory=list, init=False)

    async def call(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        await asyncio.sleep(self.delay)
        return self.answer(call)
