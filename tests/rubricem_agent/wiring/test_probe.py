"""The first request of one token: what is wrong is one sentence, and nothing is paid for."""

import json

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.config.tools import read_tools_config
from rubricem_agent.wiring.probe import find_silent, model_probes, search_probes
from rubricem_env.domain.errors import ModelError
from rubricem_env.testing.loopback import free_port, serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer
from rubricem_env.testing.tiny_model import tiny_tokenizer
from tests.search_server import SearchReply, SearchServer
from tests.vllm_server import VllmServer, recite

REFUSALS = {
    "wrong key": (ModelReply("bad key", status=401), "answered 401"),
    "wrong name": (ModelReply("no model m", status=404), "answered 404: "),
    "a page": (ModelReply(raw=b"<html>Sign in</html>"), "a web page in place of the API"),
}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.mark.parametrize("name", REFUSALS)
def test_ask_ends_in_one_sentence_before_the_first_turn(name, tmp_path, monkeypatch):
    monkeypatch.delenv("RUBRICEM_BANK", raising=False)
    reply, said = REFUSALS[name]
    server = ModelServer(lambda _: reply)
    with serve_loopback(server) as url:
        result = invoke("ask", "Q?", "--policy", f"openai:m@{url}/v1", "--out", tmp_path)
    assert isinstance(result.exception, ModelError)
    assert said in str(result.exception)
    assert "the policy m at 127.0.0.1" in str(result.exception)
    assert str(result.exception).endswith("or skip this request with --no-probe, or probe=false in a config.")
    assert {request.body["max_tokens"] for request in server.asked} == {1}


def test_an_evaluation_whose_judge_has_no_server_answers_no_question(tmp_path):
    policy = ModelServer(lambda _: ModelReply("OK"))
    judge = f"openai:judge@http://127.0.0.1:{free_port()}/v1"
    data = tmp_path / "simpleqa.csv"
    data.write_text('metadata,problem,answer\n"{}",Q?,A\n')
    with serve_loopback(policy) as url:
        run = ("eval", "simpleqa", "--data", data, "--any-version", "--policy", f"openai:m@{url}/v1", "--judge", judge)
        run += ("--tools", "offline")
        result = invoke(*run, "--out", tmp_path / "run")
    assert "the judge judge at 127.0.0.1" in str(result.exception)
    assert "Is the server running" in str(result.exception)
    assert [request.prompt for request in policy.asked] == ["Reply with OK."]


def test_a_run_with_nothing_left_to_ask_is_not_probed(tmp_path):
    data, answers = tmp_path / "simpleqa.csv", tmp_path / "answers.jsonl"
    data.write_text('metadata,problem,answer\n"{}",Q?,A\n')
    answers.write_text(json.dumps({"id": "0", "answer": "A"}) + "\n")
    server = ModelServer(lambda _: ModelReply("A"))
    run = (
        "eval",
        "simpleqa",
        "--data",
        data,
        "--any-version",
        "--policy",
        f"file:{answers}",
        "--out",
        tmp_path / "run",
    )
    with serve_loopback(server) as url:
        first = invoke(*run, "--judge", f"openai:judge@{url}/v1")
        # The probe and one verdict; the second run has nothing to ask.
        assert (first.exit_code, len(server.asked)) == (0, 2), first.output
        assert invoke(*run, "--judge", f"openai:judge@{url}/v1").exit_code == 0
    assert len(server.asked) == 2


def test_the_judge_of_the_judge_command_and_the_teacher_are_asked_first(tmp_path):
    server = ModelServer(lambda _: ModelReply("bad key", status=403))
    with serve_loopback(server) as url:
        teach = ("data", "teach", "--yes", "--limit", "3", "--teacher", f"openai:t@{url}/v1", "--out", tmp_path)
        result = invoke(*teach)
    assert "the teacher t at 127.0.0.1: the server answered 403" in str(result.exception)
    assert "Set RUBRICEM_TEACHER_KEY" in str(result.exception)
    assert len(server.asked) == 1


async def test_a_model_that_needs_more_than_one_token_for_its_thought_is_there():
    said = "Could not finish the message because max_tokens or model output limit was reached. Please try again."
    with serve_loopback(ModelServer(lambda _: ModelReply(said, status=400))) as url:
        assert await find_silent(model_probes({}, judges=[f"openai:m@{url}/v1"])) == {}


async def test_local_policies_and_rules_are_not_asked():
    assert model_probes({}, policy="local:/nope", judges=["rules"], teacher="directory:/nope") == []
    assert model_probes({}, policy="scripted") == []


async def test_a_vllm_server_is_asked_for_its_list_and_names_what_it_has():
    server = VllmServer(tiny_tokenizer(), recite([1]), max_length=64)
    with serve_loopback(server) as url:
        assert await find_silent(model_probes({}, policy=f"vllm:m@{url}/v1#f")) == {}
        (said,) = (await find_silent(model_probes({}, policy=f"vllm:other@{url}/v1#f"))).values()
    assert said.startswith("the server has no model 'other'; it has: m.")


async def test_a_search_engine_is_asked_one_query_and_its_wrong_key_is_said():
    server = SearchServer(SearchReply({"message": "Unauthorized."}, status=403))
    with serve_loopback(server.app) as url:
        tools = read_tools_config({"backend": "web", "google_search": {"engine": "plain", "url": f"{url}/search"}})
        silent = await find_silent(search_probes(tools, {"SERPER_API_KEY": "canary"}))
    (said,) = silent.values()
    assert "it refuses the key or the request (403)" in said
    assert search_probes(read_tools_config({}), {}) == []
