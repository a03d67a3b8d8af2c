"""The names of served models: which wire, which address, which key."""

import json

import pytest
from pydantic import SecretStr

from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.model_names import parse_judge, parse_policy
from rubricem_agent.policy.base import SYSTEM_FILE, TINY_SYSTEM
from rubricem_agent.wiring.models import build_judge, build_policy, connect_chat_model, system_of
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.usage import SpendLimits
from rubricem_env.llm.wires.messages_wire import MessagesWire
from rubricem_env.llm.wires.responses_wire import ResponsesWire
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer

MESSAGE = {"content": [{"type": "text", "text": "four"}], "stop_reason": "end_turn", "usage": {"output_tokens": 1}}


def connect(name, environ):
    return connect_chat_model(parse_judge(name), environ, own_key="RUBRICEM_JUDGE_KEY", role="judge", timeout=5.0)[0]


@pytest.mark.parametrize(
    ("name", "wire", "url", "variable"),
    [
        ("responses:gpt-5", ResponsesWire, "https://api.openai.com/v1/", "OPENAI_API_KEY"),
        ("anthropic:claude-9", MessagesWire, "https://api.anthropic.com/v1/", "ANTHROPIC_API_KEY"),
    ],
)
async def test_a_name_without_an_address_is_the_vendors(name, wire, url, variable):
    model = connect(name, {variable: "secret-key-1"})
    assert isinstance(model.wire, wire)
    assert str(model._client.base_url) == url
    await model.aclose()
    with pytest.raises(ConfigError, match=f"needs a key; set {variable} or RUBRICEM_JUDGE_KEY"):
        connect(name, {"GEMINI_API_KEY": "x"})


async def test_a_vendors_key_is_sent_to_no_other_host():
    seen = []

    def answer(request):
        seen.append(request)
        return ModelReply(raw=json.dumps(MESSAGE).encode())

    with serve_loopback(ModelServer(answer)) as url:
        model = connect(f"anthropic:claude-9@{url}/v1", {"ANTHROPIC_API_KEY": "secret-key-1"})
        reply = await model.complete(ChatRequest("q"))
        await model.aclose()
    assert reply.text == "four"
    assert SecretStr("secret-key-1").get_secret_value() not in str(seen)
    with pytest.raises(ConfigError, match=r"is not sent to elsewhere\.example"):
        connect("anthropic:claude-9@https://elsewhere.example/v1", {"RUBRICEM_JUDGE_KEY": "k" * 9})


def test_the_policy_of_the_package_has_a_name_and_its_own_system_prompt(tmp_path):
    assert parse_policy("tiny") == parse_policy("local:tiny")
    assert system_of("tiny") == TINY_SYSTEM
    assert system_of("openai:x@http://127.0.0.1/v1") == system_of(f"local:{tmp_path}") == ""
    (tmp_path / SYSTEM_FILE).write_text("Do this.\n")
    assert system_of(f"local:{tmp_path}") == "Do this."


def test_a_wrong_name_lists_what_there_is():
    with pytest.raises(ConfigError, match=r"there is no policy 'claude'.*anthropic:MODEL"):
        build_policy(PolicyConfig(policy="claude"), {})


async def test_a_limit_in_dollars_needs_the_price_of_each_judge():
    settings = {"judge": "rules", "ceilings": SpendLimits(dollars=20)}
    with pytest.raises(ConfigError, match=r"ceilings.dollars is 20, and the price of the judge mine is unknown"):
        build_judge(JudgeConfig(**settings, also=("openai:mine@http://127.0.0.1:1/v1",)), {})
    assert build_judge(JudgeConfig(**settings), {}).meter.limits.dollars == 20
    priced = build_judge(JudgeConfig(**settings, also=("gemini:gemini-2.5-flash",)), {"GEMINI_API_KEY": "x"})
    await priced.aclose()
