"""`rubricem ask` as its user meets it: offline, with a served model, and with everything that can be missing."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from rubricem_agent.cli.ask import NO_MODEL, AskScreen, ask
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import load_trajectory
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from rubricem_env.world.tables.analyst import TableAnalyst
from rubricem_env.world.tables.table_world import TableWorld
from tests.vllm_server import VllmServer, recite

QUESTION = "How wide is the river Tall Fox?"
KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY", "OPENAI_API_KEY", "RUBRICEM_POLICY_KEY", "RUBRICEM_BANK", "NO_COLOR")
PLAN = (
    "<think>t</think><structured_plan><deep_analysis>a</deep_analysis><rubric>r</rubric>"
    "<research_plan>p</research_plan></structured_plan>"
)
CALL = '<call_tool name="google_search">Tall Fox width</call_tool>'
FINAL = (
    "<think>t</think><state_evaluation>s</state_evaluation><review><rubric_review>r</rubric_review>"
    '<writing_plan>w</writing_plan></review><answer><cite id="S_1">60 m</cite></answer>'
)
LESSON = (
    "<reflection_rubrics>Critical Requirements: gives the width in metres with its edition.</reflection_rubrics>\n"
    "<reflection_takeaways>Look for the reporting convention before the figure is stated.</reflection_takeaways>"
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(ask)
    return lambda *arguments: CliRunner().invoke(app, [*arguments, "--no-probe", "--out", str(tmp_path)])


def served(*texts):
    """A server that writes the texts in turn, the last one again and again."""
    left = list(texts)

    def answer(request):
        text = left.pop(0) if len(left) > 1 else left[0]
        return text if isinstance(text, ModelReply) else ModelReply(text)

    return ModelServer(answer)


def test_offline_it_says_so_shows_the_stages_and_saves_both_files(run, tmp_path):
    result = run(QUESTION)
    order = [result.output.index(f"── {stage} ─") for stage in ("PLAN", "RESEARCH", "REVIEW", "ANSWER")]
    assert (result.exit_code, order) == (0, sorted(order))
    assert NO_MODEL in result.output
    assert "Tall Fox has width 60 m. [S_" in result.output
    assert "\x1b" not in result.output
    assert "](https://almanac.example/" in (tmp_path / "report.md").read_text()
    assert load_trajectory((tmp_path / "trajectory.json").read_text()).question == QUESTION


def test_json_is_one_object_and_quiet_the_answer_alone(run):
    shown = json.loads(run(QUESTION, "--json").output)
    assert (shown["ending"], shown["policy"], shown["problem"]) == ("answered", "scripted", "")
    assert shown["citations"][0]["url"].startswith("https://almanac.example/")
    assert run(QUESTION, "--quiet").output.splitlines()[0] == "Tall Fox is a river. [1]"


def test_a_served_model_researches_and_its_text_is_streamed(run, tmp_path):
    with serve_loopback(served(PLAN + CALL, FINAL)) as url:
        result = run(QUESTION, "--policy", f"openai:m@{url}/v1")
    assert result.exit_code == 0
    assert "→ google_search: Tall Fox width" in result.output
    assert "60 m [\\[1\\]](https://almanac.example/" in (tmp_path / "report.md").read_text()


def test_a_question_is_answered_from_the_tables_of_a_folder(run, tmp_path):
    pytest.importorskip("duckdb")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "sales.csv").write_text("city,amount\nOslo,2.5\nOslo,3\nRome,4\n")
    query = "<call_tool name=\"run_sql\">SELECT sum(amount) AS total FROM sales WHERE city = 'Oslo'</call_tool>"
    server = served(PLAN + query, FINAL.replace("60 m", "5.5"))
    with serve_loopback(server) as url:
        result = run("What did Oslo sell?", "--policy", f"openai:m@{url}/v1", "--tables", str(tmp_path / "shop"))

    assert result.exit_code == 0, result.output
    assert "S_1  run_sql on sales" in result.output
    assert "5.5 [\\[1\\]]" in (tmp_path / "report.md").read_text() or "5.5 [1]" in (tmp_path / "report.md").read_text()
    rules = server.asked[0].body["messages"][0]["content"]
    assert "sales(city VARCHAR, amount DOUBLE)" in rules
    assert "google_search:" not in rules


def test_tables_are_analysed_in_the_stages_of_data_analysis(run, tmp_path):
    world = TableWorld.from_seed(0)
    world.write_sqlite(tmp_path / "rivers.sqlite")
    question = world.questions[0]
    analyst = TableAnalyst(question)
    shown = f'<snippet id="S_1">run_sql on readings, stations\n1 row.\nflow\n{question.value}</snippet>'
    server = served(analyst.turn([]), analyst.turn([shown]))
    with serve_loopback(server) as url:
        options = ("--scaffold", "data_analysis", "--tables", str(tmp_path / "rivers.sqlite"))
        result = run(question.question, "--policy", f"openai:m@{url}/v1", *options)

    assert result.exit_code == 0, result.output
    order = [result.output.index(f"── {stage} ─") for stage in ("FRAME", "ANALYSE", "REPORT")]
    assert order == sorted(order)
    assert "S_1  run_sql on readings, stations" in result.output
    assert question.value in (tmp_path / "report.md").read_text()
    rules = server.asked[0].body["messages"][0]["content"]
    assert "You are a data analyst" in rules
    assert "stations_2019(id INTEGER, river TEXT, region TEXT)" in rules
    parsed = parse_trajectory(load_trajectory((tmp_path / "trajectory.json").read_text()))
    assert (parsed.rejections, parsed.stages) == ((), ("frame", "analyse", "report"))


def test_a_second_attempt_reads_the_lesson_of_the_first(run):
    server = served(PLAN + CALL, FINAL, LESSON, PLAN + CALL, FINAL)
    with serve_loopback(server) as url:
        result = run(QUESTION, "--policy", f"openai:m@{url}/v1", "--attempts", "2")
    assert result.exit_code == 0, result.output
    assert "Look for the reporting convention" in result.output
    assert "1 lesson from the bank." in result.output
    assert "<reference_examples>" in server.asked[3].body["messages"][1]["content"]


def test_a_lesson_that_cannot_be_kept_is_said_and_the_attempts_go_on(run, tmp_path):
    result = run(QUESTION, "--attempts", "2")
    assert result.exit_code == 0
    assert "No lesson was stored:" in result.output
    assert (tmp_path / "attempt_1.json").exists()


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        (["<think>on and on"], "ended two turns in a row without closing"),
        ([PLAN + CALL], "used all its searches and did not answer"),
        ([PLAN + CALL], "It asked the same thing 12 times."),
        ([ModelReply("maximum context length is 9", status=400)], "ran out of room"),
        ([ModelReply("no such key", status=401)], "answered 401"),
        ([ModelReply("no such key", status=403)], "Set RUBRICEM_POLICY_KEY in the environment to a key that"),
    ],
)
def test_a_model_that_does_not_answer_is_explained_in_a_sentence(run, turns, said):
    with serve_loopback(served(*turns)) as url:
        result = run(QUESTION, "--policy", f"openai:m@{url}/v1")
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([" "], "question is empty"),
        (["Q", "--tables", "shop"], "--tables needs a model"),
        (
            ["Q", "--scaffold", "data_analysis", "--policy", "openai:m@http://127.0.0.1:9/v1"],
            "the stages data_analysis call run_sql, which no tool here is called; name tables: --tables FOLDER",
        ),
        (["Q", "--tables", "gone", "--policy", "openai:m@http://127.0.0.1:9/v1"], "there is no folder or SQLite file"),
        (["How", "wide", "is", "it?"], 'put it in one pair of them, as in: rubricem ask "How wide is it?"'),
        (["Q", "--policy", "nope"], "no policy 'nope'"),
        (["Q", "--policy", "scripted:x"], "no policy"),
        (["Q", "--policy", "openai:m"], "lacks a URL"),
        (["Q", "--policy", "openai:"], "lacks a model"),
        (["Q", "--policy", "openai:m@ftp://h"], "must start with http"),
        (["Q", "--policy", "openai:m@http://me:pw@h/v1"], "has a login"),
        (["Q", "--policy", "openai:m@https://api.openai.com/v1"], "set OPENAI_API_KEY or RUBRICEM_POLICY_KEY"),
        (["Q", "--policy", "gemini:g"], "or GEMINI_API_KEY or GOOGLE_API_KEY in the environment"),
        (["Q", "--policy", "gemini:g@http://127.0.0.1:9"], "set RUBRICEM_POLICY_KEY"),
        (["Q", "--policy", "local:"], "lacks the folder"),
        (["Q", "--policy", "local:/nope"], "no folder /nope"),
        (["Q", "--tools", "web"], "needs a key"),
        (["Q", "--tools", "gopher://x"], "no tools"),
        (["Q", "--tools", "nope"], "file of documents, or the URL of a tool server."),
        (["Q", "--tools", "/nope/tools.toml"], "cannot read the config /nope/tools.toml"),
        (["Q", "--tools", "http:///x.toml"], "cannot read the config"),
        (["Q", "--reuse", "cross"], "give its folder with --bank"),
        (["Q", "--reuse", "cross", "--attempts", "2"], "give its folder with --bank"),
        (["Q", "--reuse", "within"], "give its folder with --bank"),
        (["Q", "--reuse", "within", "--bank", "/nope/bank"], "there is no rubric bank in /nope/bank"),
        (["Q", "--policy", "vllm:m"], "lacks a URL"),
        (["Q", "--policy", "vllm:m@ftp://h#f"], "must start with http"),
        (["Q", "--policy", "vllm:m@http://h/v1"], "no folder m with the tokenizer"),
        (["Q", "--policy", "vllm:m@http://h/v1#/nope"], "no folder /nope with the tokenizer of m"),
    ],
)
def test_what_is_missing_is_one_sentence_with_the_way_out(run, arguments, said):
    result = run(*arguments)
    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


def test_a_folder_that_cannot_be_written_is_named(run, tmp_path):
    (tmp_path / "report.md").mkdir()
    assert "Choose another folder with --out" in str(run(QUESTION).exception)


def test_the_tools_may_be_a_file_of_settings_such_as_a_corpus_of_ones_own(run, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    page = {"id": "1", "title": "Memo", "url": "https://intern.example/1", "text": "Tall Fox is 71 m wide."}
    corpus.write_text(json.dumps(page) + "\n")
    (tmp_path / "tools.toml").write_text(f'corpus = "{corpus}"\n')
    result = run(QUESTION, "--tools", str(tmp_path / "tools.toml"))
    assert result.exit_code == 0, result.output
    assert "Tall Fox is 71 m wide. [S_1]" in result.output
    assert "https://intern.example/1" in (tmp_path / "report.md").read_text()


def test_a_model_on_a_vllm_server_runs_in_tokens(run, tmp_path):
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path / "model")
    written = [tokenizer.encode(text, add_special_tokens=False) for text in (PLAN + CALL, FINAL)]
    server = VllmServer(tokenizer, recite(*written), max_length=32_000)
    with serve_loopback(server) as url:
        result = run(QUESTION, "--policy", f"vllm:m@{url}/v1#{tmp_path / 'model'}")
    assert result.exit_code == 0, result.output
    assert "60 m [S_" in result.output
    opening, turn = server.asked[0]["prompt"], written[0]
    assert server.asked[1]["prompt"][: len(opening) + len(turn)] == [*opening, *turn]


def test_a_local_model_runs_and_its_failure_to_answer_is_explained(run, tmp_path):
    folder = tmp_path / "model"
    tokenizer = tiny_tokenizer()
    tiny_qwen3(len(tokenizer), max_length=4_700).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    result = run(QUESTION, "--policy", f"local:{folder}")
    assert result.exit_code == 1
    assert "rubricem: The policy" in result.stderr


def test_temperature_and_the_limit_of_a_turn_reach_the_model(run):
    with serve_loopback(server := served(FINAL)) as url:
        run(QUESTION, "--policy", f"openai:m@{url}/v1", "--temperature", "0.25", "--max-turn-tokens", "333")
    assert (server.asked[0].body["temperature"], server.asked[0].body["max_tokens"]) == (0.25, 333)


INTERRUPTIBLE = """
import signal
from rubricem_agent.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


@pytest.mark.parametrize(
    ("at", "said", "kept"),
    [
        (1, "no turn had ended, so nothing was written.", []),
        (2, "what had ended, 1 of the turns, is in {out}/trajectory.json.", ["trajectory.json"]),
        # The reflection between two attempts.
        (3, "what had ended, 1 of the attempts, is in {out}/trajectory.json.", ["trajectory.json"]),
        (5, "what had ended, 1 of the turns, is in {out}/trajectory.json.", ["attempt_1.json", "trajectory.json"]),
    ],
)
def test_ctrl_c_keeps_what_had_ended_and_says_what_it_is(tmp_path, at, said, kept):
    victim, texts, asked = [], [PLAN + CALL, FINAL, LESSON, PLAN + CALL], []

    def answer(request):
        asked.append(request)
        if len(asked) == at:
            os.kill(victim[0].pid, signal.SIGINT)
            return ModelReply("", hangs=True)
        return texts[len(asked) - 1]

    out = tmp_path / "out"
    with serve_loopback(ModelServer(answer)) as url:
        words = ["ask", QUESTION, "--policy", f"openai:m@{url}/v1", "--no-probe", "--attempts", "2", "--out", str(out)]
        victim.append(
            subprocess.Popen([sys.executable, "-c", INTERRUPTIBLE, *words], stdout=subprocess.DEVNULL, stderr=-1)
        )
        errors = victim[0].communicate()[1].decode()
    assert victim[0].returncode == 130
    assert errors == f"\nrubricem: interrupted; {said.format(out=out)}\n"
    assert sorted(path.name for path in out.glob("*.json")) == kept
    if kept:
        trajectory = load_trajectory((out / "trajectory.json").read_text())
        assert trajectory.question == QUESTION
        assert trajectory.ending == ("answered" if at == 3 else "abandoned")
        assert (out / "report.md").exists()


def test_the_screen_says_what_it_waits_for_once_nothing_came_for_ten_seconds(monkeypatch):
    screen = AskScreen(lambda text: None, colour=False)
    assert screen.waiting(0) == ""
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 12)
    assert screen.waiting(0) == "waiting for the policy; 12 s"
    screen.wrote(PLAN + CALL)
    assert screen.waiting(0) == ""
    monkeypatch.setattr(time, "monotonic", lambda: now + 32)
    assert screen.waiting(0) == "waiting for the tool google_search; 20 s"


def show(pieces, colour=False):
    shown = []
    screen = AskScreen(shown.append, colour=colour)
    for piece in pieces:
        screen.wrote(piece)
    return "".join(shown)


def test_the_screen_shows_the_same_however_the_text_arrives():
    text = PLAN + CALL + FINAL
    assert show(text) == show([text])


def test_colour_comes_only_where_it_is_asked_for_and_a_model_cannot_drive_the_terminal():
    assert "\x1b[" in show([PLAN], colour=True)
    assert "\x1b" not in show([PLAN, "<think>\x1b[2J\u202e</think>", "<answer>\x9b31m</answer>"])
    assert "ANSWER" not in show(["<think>then I <answer> it</think>"])


def test_the_policy_of_the_package_searches_and_answers(run, tmp_path):
    """A person without any model sees a model search."""
    pytest.importorskip("torch")
    result = run(QUESTION, "--policy", "tiny", "--format", "short", "--json")
    assert result.exit_code == 0, result.output
    found = load_trajectory((tmp_path / "trajectory.json").read_text())
    assert found.ending == "answered"
    assert any(segment.observation for segment in found.segments)
