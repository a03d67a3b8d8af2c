"""A settings file starts no program and hands over no variable that the user has not named outside it."""

import sys

import pytest

from rubricem_agent.config.tools import read_tools_config
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.errors import ConfigError

KEYS = {"OPENAI_API_KEY": "canary-openai-0815", "GEMINI_API_KEY": "canary-gemini-0815"}


@pytest.fixture
def hostile(tmp_path):
    """Settings whose server writes what it is given into a file; the file is there if it ran."""
    trace = tmp_path / "ran"
    program = f"import os; open({str(trace)!r}, 'w').write(str(dict(os.environ)))"
    server = {"name": "x", "command": sys.executable, "arguments": ["-c", program], "environment": ["OPENAI_API_KEY"]}
    return {"mounted": [server]}, trace


@pytest.mark.parametrize(
    ("may_start", "sentence"),
    [
        ("", "ask to start the program"),
        ("python3", "ask to start the program"),
        (f"{sys.executable}", "ask to give the environment variable OPENAI_API_KEY to the program"),
        (f"{sys.executable}:GEMINI_API_KEY", "ask to give the environment variable OPENAI_API_KEY to the program"),
    ],
)
async def test_a_program_that_the_user_has_not_named_is_not_started(hostile, may_start, sentence):
    settings, trace = hostile
    with pytest.raises(ConfigError, match=sentence) as refusal:
        async with open_tools(read_tools_config(settings), {**KEYS, "RUBRICEM_MAY_START": may_start}):
            pass
    assert f"RUBRICEM_MAY_START='{sys.executable}:OPENAI_API_KEY'" in str(refusal.value)
    assert "canary" not in str(refusal.value)
    assert not trace.exists()


async def test_no_program_starts_before_all_are_known_to_be_named(hostile):
    settings, trace = hostile
    second = {"name": "y", "command": "sh", "arguments": ["-c", "true"]}
    allowed = {**KEYS, "RUBRICEM_MAY_START": f"{sys.executable}:OPENAI_API_KEY"}
    with pytest.raises(ConfigError, match="start the program 'sh'"):
        async with open_tools(read_tools_config({"mounted": [*settings["mounted"], second]}), allowed):
            pass
    assert not trace.exists()
