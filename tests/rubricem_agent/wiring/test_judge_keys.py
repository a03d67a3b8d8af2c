"""Whose key goes where: a URL that someone names cannot fetch Google's or OpenAI's key."""

import pytest

from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.teacher import TeacherConfig
from rubricem_agent.wiring.models import JUDGE_KEY, build_judge, key_for, naming
from rubricem_agent.wiring.teacher_data import teach
from rubricem_env.domain.errors import ConfigError, UsageError


@pytest.mark.parametrize(
    "host",
    [
        *("https://evil.example", "https://googleapis.com.evil.example", "http://10.0.0.5", "https://googleapis.com"),
        *("https://storage.googleapis.com", "https://evil.generativelanguage.googleapis.com"),
        "https://generativelanguage.googleapis.com.evil.example",
    ],
)
def test_googles_key_is_not_sent_to_a_foreign_server(host):
    with pytest.raises(UsageError, match="RUBRICEM_JUDGE_KEY"):
        build_judge(JudgeConfig(judge=f"gemini:flash@{host}"), {"GEMINI_API_KEY": "canary"})


@pytest.mark.parametrize("url", ["", "@https://generativelanguage.googleapis.com", "@http://127.0.0.1:1"])
async def test_googles_key_serves_google_and_this_machine(url):
    await build_judge(JudgeConfig(judge=f"gemini:flash{url}"), {"GEMINI_API_KEY": "canary"}).aclose()


@pytest.mark.parametrize("name", ["gemini:flash@https://judge.example", "openai:m@https://judge.example/v1"])
async def test_the_judges_own_key_goes_to_a_host_that_the_user_has_named_for_it(name):
    config, environ = JudgeConfig(judge=name), {"RUBRICEM_JUDGE_KEY": "canary"}
    with pytest.raises(ConfigError, match=r"set RUBRICEM_JUDGE_KEY_HOST=judge\.example to allow it"):
        build_judge(config, environ)
    for hosts in ("judge.example", "other.example, judge.example"):
        await build_judge(config, {**environ, "RUBRICEM_JUDGE_KEY_HOST": hosts}).aclose()
    await build_judge(config, naming(environ, JUDGE_KEY, name)).aclose()


@pytest.mark.parametrize(
    ("url", "environ", "found"),
    [
        ("https://judge.example/v1", {"OPENAI_API_KEY": "canary"}, (None, "RUBRICEM_JUDGE_KEY")),
        ("https://api.openai.com/v1", {"OPENAI_API_KEY": "canary"}, ("canary", "OPENAI_API_KEY")),
        ("https://api.openai.com/v1", {"RUBRICEM_JUDGE_KEY": "own"}, ("own", "RUBRICEM_JUDGE_KEY")),
        ("http://127.0.0.1:9/v1", {"RUBRICEM_JUDGE_KEY": "own"}, ("own", "RUBRICEM_JUDGE_KEY")),
    ],
)
def test_a_key_comes_with_the_variable_that_holds_it_or_would(url, environ, found):
    key, variable = key_for(url, environ, own=JUDGE_KEY, who="judge")
    assert (key.get_secret_value() if key else None, variable) == found


@pytest.mark.parametrize("kind", ["gemini", "gemini-batch"])
def test_googles_key_is_not_sent_to_a_foreign_teacher(kind, tmp_path):
    config = TeacherConfig(out=tmp_path, teacher=f"{kind}:flash@https://evil.example", limit=1)
    with pytest.raises(UsageError, match=r"at evil\.example needs a key; set RUBRICEM_TEACHER_KEY in"):
        teach(config, {"GEMINI_API_KEY": "canary"})
