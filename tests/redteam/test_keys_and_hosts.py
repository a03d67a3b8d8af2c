"""A key goes to its own service or to a host that the user has named, and never unencrypted beyond this machine."""

import json

import httpx2
import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.config.tools import read_tools_config
from rubricem_agent.wiring.models import google_key_for, key_for
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.hosts import LOOPBACK, url_host
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.tools.mcp_server import http_app, tool_server
from rubricem_env.world.offline import shipped_toolbox
from rubricem_viewer.guard import Guard

CANARY = "canary-key-4711"
KEYS = dict.fromkeys(
    ("GEMINI_API_KEY", "S2_API_KEY", "SERPER_API_KEY", "RUBRICEM_TOOLS_TOKEN", "RUBRICEM_SEARCH_KEY", "OTHER"), CANARY
)
DISGUISES = (
    *("http://[::1].evil/", "http://127.0.0.1:1@evil/", "http://evil@127.0.0.1/", "http://127.0.0.1.evil/"),
    *("http://localhost.evil/", "http://127.0.0.1\\@evil/", "http://evil\\@127.0.0.1/", "http://[127.0.0.1]@evil/"),
    *(
        "http://127.0.0.1%2eevil/",
        "http://evil#@127.0.0.1/",
        "http://evil/127.0.0.1",
        "http://[::1]evil:80/",
        "http://",
    ),
)


def settings_of(variable, url):
    """The settings that would send the key of a variable to an address."""
    plain = {"google_search": {"engine": "plain", "url": url}}
    return {
        "S2_API_KEY": {"backend": "web", "snippet_search": {"url": url}},
        "SERPER_API_KEY": {"backend": "web", **plain},
        "RUBRICEM_SEARCH_KEY": {"backend": "web", "google_search": {"url": url}},
        "RUBRICEM_TOOLS_TOKEN": {"remote": {"url": f"{url}/mcp", "timeout": 0.2}},
        "OTHER": {"mounted": [{"name": "x", "url": f"{url}/mcp", "token_variable": "OTHER", "timeout": 0.2}]},
    }[variable]


async def opening(settings, environ):
    """What is said where the tools cannot be opened."""
    try:
        async with open_tools(read_tools_config(settings), environ):
            return ""
    except ConfigError as refusal:
        return str(refusal)


@pytest.mark.parametrize(
    "variable", ["S2_API_KEY", "SERPER_API_KEY", "RUBRICEM_SEARCH_KEY", "RUBRICEM_TOOLS_TOKEN", "OTHER"]
)
async def test_no_key_follows_the_address_of_a_settings_file_unless_the_user_names_its_host(variable):
    evil = settings_of(variable, "https://evil.example")
    refusal = await opening(evil, KEYS)
    assert refusal.startswith(f"{variable} is not sent to evil.example")
    assert f"set {variable}_HOST=evil.example" in refusal
    assert CANARY not in refusal
    # Named: for an https address the key is sent, and for any other never.
    named = {**KEYS, f"{variable}_HOST": "evil.example"}
    assert "is not sent" not in await opening(evil, named)
    assert "unencrypted" in await opening(settings_of(variable, "http://evil.example"), named)
    # A host that is named for one key is not named for the others.
    assert "is not sent" in await opening(evil, {**KEYS, "GEMINI_API_KEY_HOST": "evil.example"})


@pytest.mark.parametrize("url", DISGUISES)
async def test_an_address_in_disguise_is_neither_this_machine_nor_a_service(url):
    assert url_host(url) not in {*LOOPBACK, "api.openai.com"}
    assert await opening(settings_of("S2_API_KEY", url), KEYS) != ""
    with pytest.raises(ConfigError):
        google_key_for(url, KEYS, own="RUBRICEM_JUDGE_KEY", who="the judge")


@pytest.mark.parametrize(
    "url",
    [
        *("http://api.openai.com/v1", "HTTP://API.OPENAI.COM/", "http://10.0.0.5:8000/v1", "http://127.0.0.2/v1"),
        *("//api.openai.com/v1", "ftp://api.openai.com", "https://me:pw@api.openai.com/v1"),
    ],
)
def test_no_key_of_a_model_travels_unencrypted_beyond_this_machine(url):
    environ = {"OPENAI_API_KEY": CANARY, "RUBRICEM_JUDGE_KEY": CANARY}
    with pytest.raises(ConfigError, match=r"RUBRICEM_JUDGE_KEY is not sent to .* unencrypted"):
        key_for(url, environ, own="RUBRICEM_JUDGE_KEY", who="judge")
    with pytest.raises(ConfigError, match="unencrypted"):
        google_key_for("http://generativelanguage.googleapis.com", {"GEMINI_API_KEY": CANARY}, own="X", who="the judge")


def test_keys_reach_their_own_services_and_this_machine():
    environ = {"OPENAI_API_KEY": CANARY, "GEMINI_API_KEY": CANARY, "RUBRICEM_JUDGE_KEY": ""}
    for url, found in (("https://api.openai.com/v1", CANARY), ("https://evil.example/v1", None)):
        key, _ = key_for(url, environ, own="RUBRICEM_JUDGE_KEY", who="judge")
        assert (key and key.get_secret_value()) == found
    key, _ = key_for("http://[::1]:8000/v1", {"RUBRICEM_JUDGE_KEY": CANARY}, own="RUBRICEM_JUDGE_KEY", who="judge")
    assert key is not None
    for url in ("", "https://generativelanguage.googleapis.com", "http://127.0.0.1:9", "http://LOCALHOST"):
        assert google_key_for(url, environ, own="X", who="the judge").get_secret_value() == CANARY


def test_the_key_of_another_server_never_reaches_google():
    own = {"RUBRICEM_SEARCH_KEY": CANARY}
    for url in ("", "https://generativelanguage.googleapis.com"):
        with pytest.raises(ConfigError) as refused:
            google_key_for(url, own, own="RUBRICEM_SEARCH_KEY", who="google_search")
        assert "set GEMINI_API_KEY" in str(refused.value)
        both = {**own, "GEMINI_API_KEY": "g"}
        assert google_key_for(url, both, own="RUBRICEM_SEARCH_KEY", who="google_search").get_secret_value() == "g"


def test_the_token_goes_to_the_tool_server_that_the_command_names(monkeypatch):
    monkeypatch.setenv("RUBRICEM_TOOLS_TOKEN", CANARY)
    for url, said in (("http://127.0.0.2:9/mcp", "unencrypted"), ("https://127.0.0.1:9/mcp", "Is it running?")):
        refusal = CliRunner().invoke(app, ["tools", "call", "google_search", "x", "--url", url]).exception
        assert isinstance(refusal, ConfigError)
        assert said in str(refusal)


@pytest.mark.parametrize("host", ["evil", "[::1].evil", "127.0.0.1:1@evil", "evil@127.0.0.1", "localhost.evil:80", ""])
async def test_our_servers_answer_under_the_name_of_this_machine_alone(host):
    async def inner(scope, receive, send):
        raise AssertionError("a request for another host went through")

    for server in (Guard(inner, token="t"), http_app(tool_server(shipped_toolbox(), ()), token=None)):
        with serve_loopback(server) as url:
            async with httpx2.AsyncClient() as client:
                reply = await client.post(f"{url}/mcp", content=json.dumps({}), headers={"host": host})
        assert reply.status_code in (400, 421)
