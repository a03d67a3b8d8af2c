"""What a benchmark is answered from: it is named, it fits the protocol, and it stands beside every number."""

import json

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.config.tools import parse_tools
from rubricem_agent.evals.suite import SUITE
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer

REAL = [name for name, benchmark in SUITE.items() if not benchmark.is_almanac]


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("policy", ["scripted", "openai:m@http://127.0.0.1:9/v1", "local:runs/sft"])
def test_no_real_benchmark_is_answered_from_the_almanac_in_silence(name, policy):
    with pytest.raises(UsageError, match=r"no tools are named: only the shipped almanac.*--tools offline") as refused:
        plan_run(EvalConfig(benchmark=name, policy=policy))
    assert ("--tools web" in str(refused.value)) == (name != "browsecomp_plus")


@pytest.mark.parametrize("settings", ["", "timeout = 9.0", "[tools]", 'backend = "offline"'])
def test_a_settings_file_is_not_the_explicit_choice_of_the_almanac(make_config, tmp_path, settings):
    (tmp_path / "tools.toml").write_text(settings)
    with pytest.raises(UsageError, match=r'tools\.toml names neither .* Set backend = "web" or corpus = FILE there;'):
        plan_run(make_config("simpleqa", policy="scripted", tools=str(tmp_path / "tools.toml")))


def test_what_the_protocol_has_no_place_for_is_refused(make_config):
    with pytest.raises(UsageError, match=r"--tools none is closed book, .* ResearchRubrics .* Give --tools"):
        plan_run(make_config("researchrubrics", policy="scripted", tools="none"))
    assert plan_run(make_config("simpleqa", policy="scripted", tools="none")).manifest.label.endswith(", closed book")


@pytest.mark.parametrize(
    ("settings", "searched"),
    [
        ("offline", "almanac"),
        ("web", "web (gemini, semantic_scholar)"),
        ("none", "closed book"),
        ("http://user:secret@127.0.0.1:9/mcp?key=secret", "tool server (127.0.0.1)"),
        ('backend = "web"\ngoogle_search = ["serper", "brave"]', "web (serper, brave, semantic_scholar)"),
        ('corpus = "mine.jsonl"', "index (mine.jsonl)"),
        ('replay = "calls.jsonl"', "record (calls.jsonl)"),
        ('backend = "none"\n[[mounted]]\nname = "notes"\nurl = "http://x.example"', "tool server (server notes)"),
        ('[[mounted]]\nname = "notes"\nurl = "http://x.example"', "almanac (server notes)"),
    ],
)
def test_what_is_searched_is_said_in_words(tmp_path, settings, searched):
    if " = " in settings:
        (tmp_path / "tools.toml").write_text(settings)
        settings = str(tmp_path / "tools.toml")
    assert parse_tools(settings).searched == searched


def test_the_almanac_stands_in_label_manifest_report_and_first_line(make_config, judge_url, tmp_path):
    config = make_config("simpleqa", policy="scripted", limit=1)
    command = ["eval", "simpleqa", "--data", config.data, "--any-version", "--limit", "1", "--no-probe"]
    command += ["--judge", f"openai:judge-of-tests@{judge_url}", "--tools", "offline", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    first = (
        "SimpleQA, official*, own prompts, almanac, 1 examples (simple-evals sample of 1, seed 0); searches: almanac"
    )
    assert done.stdout.splitlines()[0] == first
    assert "SimpleQA is answered from the almanac, an invented world" in done.stderr
    agent = json.loads((tmp_path / "run" / "run.json").read_text())["agent"]
    assert (agent["tools"], agent["search"]) == ("offline", "almanac")
    assert "official*, own prompts, almanac" in (tmp_path / "run" / "report.html").read_text()


def test_a_login_in_the_address_of_a_tool_server_is_not_written_down(make_config):
    config = make_config("simpleqa", policy="scripted", tools="http://me:secret@127.0.0.1:9/mcp?key=secret")
    assert "secret" not in (manifest := plan_run(config).manifest).model_dump_json()
    assert (manifest.agent.tools, manifest.label) == ("http://127.0.0.1:9/mcp", "official*, own prompts, tool server")


def test_a_run_does_not_resume_with_other_tools(run, make_config, tmp_path):
    corpus = tmp_path / "mine.jsonl"
    corpus.write_text('{"id": "d", "title": "t", "url": "https://x.example/1", "text": "A fact."}\n')
    run(make_config("simpleqa", policy="scripted", limit=1))
    for tools in (str(corpus), "none"):
        with pytest.raises(UsageError, match=r"holds a run with --tools offline; refusing to resume with"):
            run(make_config("simpleqa", policy="scripted", limit=1, tools=tools))
    judged = run(make_config("simpleqa", policy="scripted", limit=1, tools="", stage="verdicts"))
    assert judged.scores.manifest.agent.search == "almanac"


def test_answers_of_a_file_need_no_tools_and_name_no_search(make_config):
    planned = plan_run(make_config("simpleqa"))
    assert planned.manifest.label == "official*, own prompts"
    assert planned.headline.endswith("; answers as given")


def test_closed_book_answers_in_one_turn_without_a_search(run, make_config):
    answer = "<think>I know it.</think><answer>\\boxed{Answer 6}</answer>"
    with serve_loopback(app := ModelServer(lambda _: answer)) as url:
        finished = run(make_config("simpleqa", policy=f"openai:m@{url}/v1", tools="none", limit=1))
    assert len(app.asked) == 1
    assert "you have no search tools" in json.dumps(app.asked[0].body)
    assert "Keep searching" not in json.dumps(app.asked[0].body)
    assert finished.scores.endings == {"answered": 1}
    assert finished.scores.found == {"box in the answer tag": 1}


def test_tools_that_serve_the_almanac_unnoticed_end_the_run_without_an_answer(run, make_config, tmp_path):
    calls = tmp_path / "calls.jsonl"
    recording = tmp_path / "record.toml"
    recording.write_text(f'record = "{calls}"\n')
    answer = "<think>So.</think><answer>\\boxed{A}</answer>"
    search = '<think>So.</think><call_tool name="google_search">How wide is the river Tall Fox?</call_tool>'
    app = ModelServer(lambda asked: answer if len(asked.body["messages"]) > 2 else search)
    with serve_loopback(app) as url:
        policy = {"policy": f"openai:m@{url}/v1", "style": "react", "limit": 1}
        run(EvalConfig(benchmark="almanac", tools=str(recording), out=tmp_path / "a", probe=False, **policy))
        assert "almanac.example" in calls.read_text()
        replay = tmp_path / "replay.toml"
        replay.write_text(f'replay = "{calls}"\n')
        with pytest.raises(ConfigError, match=r"the tools serve the almanac\. Name others with --tools"):
            run(make_config("simpleqa", tools=str(replay), **policy))
    assert (tmp_path / "run" / "answers.jsonl").read_text() == ""
