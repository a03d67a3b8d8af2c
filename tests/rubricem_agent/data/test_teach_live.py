"""A teacher behind a real HTTP server: from the command's settings to samples, with what was spent kept beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricem_agent.build.data import teach
from rubricem_agent.config import TeacherConfig
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.llm.usage import SpendLimitReached, SpendLimits
from rubricem_env.testing.loopback import serve_loopback

FIRST = (
    "<scratchpad>A look-up.</scratchpad><structured_plan><analysis>a</analysis><rubrics>b</rubrics>"
    "<research_plan>c</research_plan></structured_plan>"
    '<call_tool name="google_web_search">Calm Bridge depth</call_tool>'
)
LATER = (
    "<scratchpad>Enough.</scratchpad><state_evaluation>S_1 has it.</state_evaluation>"
    "<review><rubric_review>met</rubric_review><writing_plan>one value</writing_plan></review>"
    "<answer>\\boxed{12 m}</answer>"
)


class ChatServer:
    """Answers as a teacher would: a plan to the first prompt, an answer to any later one."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.calls += 1
        text = LATER if b"The work so far" in body else FIRST
        reply = {
            "model": "teacher",
            "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 50},
        }
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(reply).encode()})


def test_a_live_teachers_traces_become_canonical_samples_and_are_not_bought_twice(tmp_path: Path) -> None:
    server = ChatServer()
    with serve_loopback(server) as url:
        config = TeacherConfig(out=tmp_path, limit=2, teacher=f"openai:teacher@{url}")
        harvested = teach(config, {})
        again = teach(config, {})

    assert harvested.report.accepted == 2
    assert harvested.samples[0].messages[2].content.startswith("<think>A look-up.</think><structured_plan>")
    assert '<call_tool name="google_search">' in harvested.samples[0].messages[2].content
    assert again.samples == harvested.samples
    # Two traces of two turns.
    assert server.calls == 4
    assert json.loads((tmp_path / "usage.json").read_text())["teacher"]["usage"]["calls"] == 4


def test_a_ceiling_stops_the_run_and_what_is_paid_for_stays(tmp_path: Path) -> None:
    server = ChatServer()
    with serve_loopback(server) as url:
        config = TeacherConfig(out=tmp_path, limit=3, teacher=f"openai:teacher@{url}", concurrency=1)
        with pytest.raises(SpendLimitReached):
            teach(config.model_copy(update={"ceilings": SpendLimits(calls=3)}), {})
        harvested = teach(config, {})

    assert harvested.report.accepted == 3
    assert server.calls == 6


def test_a_broken_account_of_what_was_spent_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "usage.json").write_text('{"calls": ')

    with pytest.raises(FileFormatError, match=r"usage\.json does not say what was spent.*Restore it"):
        teach(TeacherConfig(out=tmp_path, limit=1), {})
