"""`rubricem ask` in a bounded context: the options, what the server is sent, what the user sees."""

import itertools
import os

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import load_trajectory
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer
from rubricem_env.tools.render import estimate_tokens

PLAN = (
    "<think>t</think><structured_plan><deep_analysis>a</deep_analysis><rubric>r</rubric>"
    "<research_plan>p</research_plan></structured_plan>"
)
CALL = '<call_tool name="google_search">Tall Fox width</call_tool>'
FINAL = "<think>t</think><review><rubric_review>r</rubric_review><writing_plan>w</writing_plan></review>"


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.endswith(("_API_KEY", "_AUTH_TOKEN"))]:
        monkeypatch.delenv(name)
    return lambda *options: CliRunner().invoke(
        app, ["ask", "How wide is the Tall Fox?", "--out", str(tmp_path), *options]
    )


def research(calls):
    number = itertools.count()

    def write(_):
        at = next(number)
        if at == calls:
            return ModelReply(f'{FINAL}<answer><cite id="S_1">60 m</cite></answer>')
        return ModelReply((f"<state_evaluation>Fact {at}.</state_evaluation>" if at else PLAN) + CALL)

    return ModelServer(write)


def test_a_hundred_calls_are_asked_in_a_context_of_eight_thousand_tokens(run, tmp_path):
    server = research(100)
    with serve_loopback(server) as url:
        length = ("--max-calls", "100", "--max-turns", "104", "--max-tokens", "200000")
        result = run("--policy", f"openai:m@{url}/v1", "--no-probe", *length, "--fold-at", "8000", "--fold-to", "5000")
    assert result.exit_code == 0, result.output
    sent = [sum(estimate_tokens(message["content"]) for message in asked.body["messages"]) for asked in server.asked]
    assert (len(sent), max(sent) <= 8_000) == (101, True)
    trajectory = load_trajectory((tmp_path / "trajectory.json").read_text())
    assert trajectory.folds
    assert result.output.count("(the context was folded; whole are 3 turns)") == len(trajectory.folds)
    assert "60 m [S_1]" in result.output


def test_a_context_without_room_for_the_prompt_says_so(run):
    result = run("--fold-at", "1000", "--fold-to", "900")
    assert result.exit_code == 1
    assert "tokens and context.fold_to is 900" in result.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--fold-at", "4000"), "fold_to is 8192 and fold_at is 4000"),
        (("--fold-to", "4000"), "fold_to is set and fold_at is not"),
        (("--max-calls", "100"), "max_turns is 14 and max_calls is 100"),
    ],
)
def test_options_that_contradict_each_other_are_refused(run, options, sentence):
    result = run(*options)
    assert isinstance(result.exception, ConfigError)
    assert sentence in str(result.exception)
