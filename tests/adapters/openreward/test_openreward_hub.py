"""The folder for OpenReward, served as its Dockerfile does and played by OpenReward's own client."""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("openreward", reason="openreward is not installed; run make adapter-openreward")

from openreward import OpenReward
from openreward.api.environments.types import Message, ToolCallBlock

from docs.adapters.tutor import tutored_query
from rubricem_env.domain.base import STAGES
from tests.adapters.golden_group import GOLDEN, SIZE, assert_golden_scores, tutor

HUB = Path(__file__).parents[3] / "docs" / "hubs" / "openreward"


@pytest.fixture(scope="module")
def environment():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = (
        f"import sys; sys.path.insert(0, {str(HUB)!r}); import server; "
        f"server.Server([server.DeepResearch]).run('127.0.0.1', {port})"
    )
    process = subprocess.Popen([sys.executable, "-c", serve], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(f"http://127.0.0.1:{port}/health", process)
        yield OpenReward(api_key="none").environments.get("deepresearch", base_url=f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(10)


def wait(url, process):
    for _ in range(300):
        try:
            return urllib.request.urlopen(url).close()
        except OSError:
            assert process.poll() is None, "the server ended"
        time.sleep(0.1)
    raise TimeoutError(url)


def task_of(environment, key):
    return next(task for task in environment.list_tasks("train") if task.task_spec["key"] == key)


def play(environment, begin):
    """One episode; returns its calls and its last output."""
    with environment.session(task=task_of(environment, tutored_query().key)) as session:
        _, user = session.get_messages()
        write, seen, calls = begin(), user.blocks[0].text, []
        while True:
            calls.append(write(seen))
            output = session.call_tool("write", {"text": calls[-1]})
            if output.finished:
                return calls, output
            seen = output.blocks[0].text


def candidate(calls):
    blocks = [ToolCallBlock(id=str(number), name="write", input={"text": text}) for number, text in enumerate(calls)]
    return [Message(role="assistant", blocks=blocks)]


def test_the_messages_tell_the_rules_and_the_question(environment):
    assert list(environment.list_splits()) == ["train"]
    assert [each.name for each in environment.list_tools()] == ["write"]
    with environment.session(task=task_of(environment, tutored_query().key)) as session:
        system, user = session.get_messages()
        assert system.role == "system"
        assert '<call_tool name="google_search">' in system.blocks[0].text
        assert tutored_query().question in user.blocks[0].text


def test_four_attempts_get_the_golden_scores(environment):
    played = [play(environment, lambda number=number: tutor(number)) for number in range(SIZE)]
    for _, output in played:
        assert 0 <= output.reward <= 1
        assert output.metadata["score_answer"] == output.reward
    with environment.session(task=task_of(environment, tutored_query().key)) as session:
        assert session.supports_score_group()
        scores = session.score_group([candidate(calls) for calls, _ in played])
    assert_golden_scores([[each.metadata[f"score_{stage!s}"] for stage in STAGES] for each in scores])
    assert [each.reward for each in scores] == pytest.approx([row[-1] for row in GOLDEN["scores"]])


def test_a_model_that_writes_no_tags_ends_without_an_answer_and_gets_nothing_for_it(environment):
    calls, output = play(environment, lambda: lambda text: "I do not know.")
    assert "stalled" in output.blocks[0].text
    assert output.reward == 0
    assert len(calls) > 1
