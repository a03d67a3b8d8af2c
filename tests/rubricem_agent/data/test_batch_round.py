"""A round of a batch teacher against an engine that is slower than the calls come: a call that waits is no error."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from rubricem_agent.config.search_engines import GoogleSearchConfig, RateConfig
from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.data.base import TeacherTask, Trace, TurnReply
from rubricem_agent.data.filter import harvest
from rubricem_agent.data.generate import Generation
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.trajectory import Query, ToolCall, ToolResult, ToolStatus
from rubricem_env.testing.loopback import serve_loopback
from rubricem_records.files.line_file import LineFile
from tests.rubricem_agent.data.conftest import FIRST, LAST
from tests.search_server import SearchReply, SearchServer

TRACES, QUESTIONS = 3_000, 300
"""Ten traces share a question, whose search is cached."""
LATENCY, TOTAL, AT_ONCE = 0.03, 4.0, 2
"""Seconds for one call, the limit of a call, and the calls at once; a round takes at least 300 x 0.03 s / 2 = 4.5 s."""


class TwoTurns:
    """Searches for its own question, then answers."""

    name = "two turns"

    async def write(self, pending: Sequence[Trace]) -> Sequence[TurnReply]:
        return [TurnReply(id=trace.next_id, text=self._text(trace)) for trace in pending]

    def _text(self, trace: Trace) -> str:
        return LAST if trace.round > 1 else FIRST.replace("Calm Bridge width", trace.task.query.question)

    async def aclose(self) -> None:
        return


@pytest.mark.no_cover
async def test_a_round_of_3_000_traces_outlasts_the_limit_of_a_call_and_loses_no_trace(tmp_path: Path) -> None:
    hit = {"title": "Calm Bridge", "snippet": "The width of Calm Bridge is 120 m.", "link": "https://a.example"}
    engine = SearchServer(SearchReply({"organic": [hit]}, delay=LATENCY))
    tasks = [
        TeacherTask(f"q{number}", Query(question=f"How wide is bridge {number % QUESTIONS}?"))
        for number in range(TRACES)
    ]
    with serve_loopback(engine.app) as url:
        google = GoogleSearchConfig(engine="plain", url=url, rates=RateConfig(concurrency=AT_ONCE))
        tools = ToolsConfig(backend="web", google_search=google, timeout=TOTAL, total=TOTAL)
        async with open_tools(tools, {"SERPER_API_KEY": "k"}) as opened:
            generation = Generation(
                TwoTurns(),
                opened.toolbox,
                journal=LineFile(tmp_path / "journal.jsonl"),
                together=TRACES,
                concurrency=TRACES,
            )
            traces = await generation.run(tasks)

    report = harvest(traces, system="s", user=lambda query: query.question, teacher="two turns", prompt_hash="").report
    assert (report.traces, report.accepted) == (TRACES, TRACES)
    # No call was given up and repeated.
    assert len(engine.requests) == QUESTIONS


class CrowdedToolbox:
    """Counts the calls under way."""

    names = ("google_search",)

    def __init__(self) -> None:
        self.inside = self.most = 0

    async def call(self, call: ToolCall) -> ToolResult:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(0)
        self.inside -= 1
        return ToolResult(status=ToolStatus.EMPTY)


async def test_the_calls_of_a_round_are_bounded(tmp_path: Path) -> None:
    toolbox = CrowdedToolbox()
    tasks = [TeacherTask(f"q{number}", Query(question=f"How wide is bridge {number}?")) for number in range(20)]
    journal = LineFile(tmp_path / "journal.jsonl")
    await Generation(TwoTurns(), toolbox, journal=journal, together=20, concurrency=3).run(tasks)
    assert toolbox.most == 3
