import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.command import INCOMPLETE
from rubricem_agent.cli.evals import eval_app, hint_of
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_agent.wiring.hub_files import parse_hub_file
from rubricem_env.domain.errors import ConfigError, FileFormatError, MissingExtraError, UsageError
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer

SAMPLE = Path(__file__).parents[2] / "samples" / "benchmarks" / "healthbench.synthetic.jsonl"
RUNNER = CliRunner()
HEALTHBENCH = ("healthbench", "--data", SAMPLE, "--any-version", "--tools", "offline")


def call(*arguments: object):
    return RUNNER.invoke(eval_app, [str(each) for each in arguments])


@pytest.mark.parametrize("words", [("almanac",), ("run", "almanac")])
def test_the_almanac_runs_offline_by_its_name_with_and_without_the_word_run(tmp_path, words):
    result = call(*words, "--policy", "expert", "--limit", 3, "--out", tmp_path)

    assert result.exit_code == 0
    assert "100.0" in result.output
    assert (tmp_path / "report.html").exists()


def test_a_dry_run_counts_calls_and_money_and_writes_nothing(tmp_path):
    result = call(*HEALTHBENCH, "--dry-run", "--out", tmp_path / "run")

    # 3 + 4 + 5 + 6 items, twice.
    assert " 36 " in result.output
    assert "no model was called" in result.output
    assert "price of gpt-4.1-2025-04-14: $2 read, $8 written for a million tokens (" in " ".join(result.output.split())
    assert not (tmp_path / "run").exists()


def test_report_prints_json_and_writes_a_page(tmp_path):
    call("almanac", "--policy", "expert", "--limit", 3, "--out", tmp_path / "run")

    result = call("report", tmp_path / "run", "--json", "--html", tmp_path / "r.html")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["runs"][0]["judges"][0]["score"] == 1.0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize("stored", [None, "{}"])
def test_rescore_makes_the_numbers_that_are_missing_or_cannot_be_read(tmp_path, stored):
    call("almanac", "--policy", "expert", "--limit", 3, "--out", tmp_path)
    path = tmp_path / "scores.json"
    made = path.read_bytes()
    path.unlink() if stored is None else path.write_text(stored)

    assert f"rubricem eval rescore {tmp_path}" in str(call("report", tmp_path).exception)
    result = call("rescore", tmp_path)

    assert "there were none before" in result.output
    assert path.read_bytes() == made


@pytest.mark.parametrize("log", ["answers.jsonl", "verdicts.jsonl"])
@pytest.mark.parametrize("content", [b"\x7fELF\0\1\2", b"{\xff\xfe", b'{"a":\0 1', b"\x89PNG\r\n\x1a\n\0", None])
def test_a_log_that_no_run_has_written_is_refused_and_kept(tmp_path, log, content):
    command = ("almanac", "--policy", "expert", "--limit", 1, "--out", tmp_path)
    call(*command)
    path, scores = tmp_path / log, (tmp_path / "scores.json").read_bytes()
    path.unlink(missing_ok=True)
    os.mkfifo(path) if content is None else path.write_bytes(content)

    for arguments in (("rescore", tmp_path), command) if content else (("rescore", tmp_path),):
        refusal = call(*arguments).exception
        assert isinstance(refusal, FileFormatError)
        assert str(path) in str(refusal)

    assert content is None or path.read_bytes() == content
    assert (tmp_path / "scores.json").read_bytes() == scores


@pytest.mark.parametrize("rest", [b'{"id": "caf\xc3', b"\0\0\0", b'{"id"\0\0'])
def test_what_a_kill_or_a_power_cut_leaves_of_a_line_is_passed_over(tmp_path, rest):
    call("almanac", "--policy", "expert", "--limit", 1, "--out", tmp_path)
    with (tmp_path / "verdicts.jsonl").open("ab") as file:
        file.write(rest)
    assert "the same as before" in call("rescore", tmp_path).output


INTERRUPTED_RUN = """
import signal, sys
from rubricem_agent.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


def test_ctrl_c_says_that_the_same_command_resumes_and_it_does(tmp_path):
    asked, victim = [], []

    def answer(request):
        asked.append(request)
        if len(asked) == 4:
            os.kill(victim[0].pid, signal.SIGINT)
        return '{"criteria_met": true}'

    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(f'{{"id": "synthetic-{number:04d}", "answer": "yes"}}\n' for number in range(8)))
    with serve_loopback(ModelServer(answer)) as url:
        words = ["eval", "healthbench", "--data", SAMPLE, "--any-version", "--policy", f"file:{answers}"]
        words += ["--judge", f"openai:judge@{url}/v1", "--judge-concurrency", "1", "--out", tmp_path / "run"]
        command = [sys.executable, "-c", INTERRUPTED_RUN, *map(str, words)]
        victim.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        said = victim[0].communicate()[1]
        again = call(*words[1:])

    assert victim[0].returncode == 130
    # Old releases of rich end their progress with an empty line.
    assert said.lstrip() == f"interrupted; the results so far are in {tmp_path / 'run'}; the same command resumes.\n"
    assert again.exit_code == 0


def test_a_table_that_does_not_fit_is_shown_row_by_row_and_nothing_is_cut(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = call("almanac", "--policy", "expert", "--limit", 3, "--out", tmp_path).stdout

    assert "\u2026" not in shown
    assert "  95 % interval  100.0 to 100.0" in shown
    assert max(map(len, shown.splitlines())) <= 80


def judged_by(answer, folder, *more: object):
    """HealthBench with given answers and one judge, as a user calls it."""
    answers = folder / "answers.jsonl"
    answers.write_text("".join(f'{{"id": "synthetic-{number:04d}", "answer": "yes"}}\n' for number in range(8)))
    with serve_loopback(ModelServer(answer)) as url:
        words = ["healthbench", "--data", SAMPLE, "--any-version", "--policy", f"file:{answers}", "--no-probe"]
        return call(*words, "--judge", f"openai:judge@{url}/v1", "--out", folder / "run", *more)


def test_the_counts_are_of_this_start_and_what_was_there_before_is_said_apart(tmp_path):
    words = ("almanac", "--policy", "expert", "--limit", 3, "--out", tmp_path)

    assert "3 answered and 3 judged now\n" in call(*words).stderr
    assert "0 answered and 0 judged now; 3 answered and 3 judged before this start\n" in call(*words).stderr


@pytest.mark.parametrize("more", [(), ("--quiet",), ("--json",)])
def test_a_judge_of_whom_nothing_can_be_read_is_no_success_and_one_reply_is_shown(tmp_path, more):
    result = judged_by(lambda asked: "I like cats.", tmp_path, *more)

    assert result.exit_code == 1
    assert "no answer got a grade by openai:judge@" in result.stderr
    assert "A reply of it: 'I like cats.'" in result.stderr


def test_a_quiet_run_says_why_it_stopped(tmp_path):
    priced = ("--quiet", "--budget", "0.001", "--price", "judge=1,800")
    result = judged_by(lambda asked: '{"criteria_met": true}', tmp_path, *priced)

    assert result.exit_code == INCOMPLETE
    assert "are used; the limit is 0.001. Raise the limit" in result.stderr
    assert "with a larger --budget to resume" in result.stderr


def test_list_names_all_nine_whole_on_a_narrow_screen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    output = call("list").output

    names = ("healthbench", "researchqa", "drb", "researchrubrics", "simpleqa", "twowiki", "webwalkerqa")
    assert all(name in output for name in (*names, "deepsearchqa", "almanac"))


def test_a_run_with_missing_answers_exits_with_3(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # the table breaks words where it is narrow
    answers = tmp_path / "answers.jsonl"
    answers.write_text('{"id": "test-rivers-01", "answer": "12 m"}\n')

    result = call("almanac", "--policy", f"file:{answers}", "--limit", 3, "--out", tmp_path / "run")

    assert result.exit_code == INCOMPLETE
    assert "2 unanswered" in result.output


def test_an_exported_log_is_read_by_inspect_or_the_way_to_install_it_is_named(tmp_path):
    call("almanac", "--policy", "expert", "--limit", 2, "--out", tmp_path / "run")

    result = call("export", tmp_path / "run", "--out", tmp_path / "log.eval")

    if find_spec("inspect_ai") is None:
        assert isinstance(result.exception, MissingExtraError)
        assert "rubricem[eval]" in str(result.exception)
        return
    from inspect_ai.log import read_eval_log

    log = read_eval_log(str(tmp_path / "log.eval"))
    assert [len(sample.scores) for sample in log.samples] == [1, 1]
    messages = log.samples[0].messages
    called = [call.id for message in messages if message.role == "assistant" for call in message.tool_calls or ()]
    assert called == [message.tool_call_id for message in messages if message.role == "tool"] != []
    assert log.results.scores[0].metrics["truth"].value == 1.0


def test_every_hub_file_of_the_list_is_one_that_data_takes():
    files = [entry["file"] for entry in json.loads(call("list", "--json").stdout)]

    named = [parse_hub_file(file) for file in files if file.startswith("hf:")]

    assert len(named) == 5
    assert all(file.endswith((".jsonl", ".json", ".csv")) for _, file, _ in named)


def test_the_list_says_what_names_the_examples():
    ids = {entry["name"]: entry["ids"] for entry in json.loads(call("list", "--json").stdout)}

    assert (ids["simpleqa"], ids["healthbench"]) == ("row numbers from 0", "prompt_id of the data file")


@pytest.mark.parametrize("name", ["open ai/x/y.csv", "openai/x", "openai//y.csv"])
def test_a_name_that_the_hub_cannot_have_is_refused(name):
    with pytest.raises(ConfigError, match=r"named hf:OWNER/NAME/FILE\[@REVISION\]"):
        parse_hub_file(f"hf:{name}")


REFUSED = [
    (("--policy", "bogus:xyz"), "there is no policy 'bogus:xyz'"),
    (("--policy", "openai:model"), "the policy 'openai:model' lacks a URL"),
    (("--judge", "nonsense"), "there is no judge 'nonsense'"),
    (("--criteria", "nope"), "belong to the benchmark drb; almanac has none of them"),
    (("--seen", "nope"), "nope cannot be read .* give --seen the file of JSON lines that training read"),
    (("--policy", "file:nope"), "nope cannot be read .* with --policy file:ANSWERS.jsonl"),
]


@pytest.mark.parametrize(("words", "named"), REFUSED)
def test_a_dry_run_refuses_what_the_run_would_refuse(tmp_path, words, named):
    result = call("almanac", "--dry-run", "--out", tmp_path / "run", *words)

    assert isinstance(result.exception, UsageError)
    assert re.search(named, str(result.exception))


def test_a_judge_that_is_not_needed_is_named_in_a_warning(tmp_path):
    result = call("almanac", "--limit", 1, "--judge", "gemini:gemini-2.5-flash", "--out", tmp_path)

    assert result.exit_code == 0
    assert "--judge gemini:gemini-2.5-flash is not asked" in result.output


@pytest.mark.parametrize("out", ["afile", "afile/x"])
def test_a_run_is_not_begun_where_nothing_can_be_written(tmp_path, out):
    (tmp_path / "afile").write_text("")

    result = call("almanac", "--limit", 1, "--out", tmp_path / out)

    assert isinstance(result.exception, ConfigError)
    assert "Choose another folder with --out" in str(result.exception)


@pytest.mark.parametrize(
    ("room", "is_answered", "refused_file"),
    # A manifest has about 1,000 bytes, two answers 8,000, the scores 2,000, the page 5,000.
    [
        (10, False, "run.json"),
        (1_500, False, "answers"),
        (6_000, False, "answers"),
        (1_000, True, "scores"),
        (4_000, True, "report"),
    ],
)
def test_a_full_disk_is_one_sentence_and_the_same_command_resumes(tmp_path, room, is_answered, refused_file):
    words = ("almanac", "--policy", "expert", "--limit", 2, "--out", tmp_path / "run")
    if is_answered:
        call(*words)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
    try:
        refused = call(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)

    assert isinstance(refused.exception, ConfigError)
    said = str(refused.exception)
    assert re.search(rf"cannot write to .*{refused_file}.*: File too large\. Make room.*command then resumes", said)
    assert call(*words).exit_code == 0


@pytest.mark.parametrize("page", ["nowhere/page.html", "."])
def test_a_page_that_cannot_be_written_is_one_sentence(tmp_path, page):
    call("almanac", "--policy", "expert", "--limit", 1, "--out", tmp_path / "run")

    result = call("report", tmp_path / "run", "--html", tmp_path / page)

    assert isinstance(result.exception, ConfigError)
    assert "Choose another file with --html" in str(result.exception)


def test_a_seed_below_zero_is_refused_by_the_option():
    result = call("almanac", "--seed", -1)

    assert isinstance(result.exception, UsageError)
    assert "at seed: input should be greater than or equal to 0 (got -1)" in str(result.exception)


def test_missing_answers_of_another_run_are_to_be_made_there(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "test-rivers-01", "answer": "12 m"}\n')
    call("almanac", "--policy", f"file:{tmp_path / 'a.jsonl'}", "--limit", 3, "--out", tmp_path / "run")

    result = call("almanac", "--mode", "strict", "--answers-from", tmp_path / "run", "--out", tmp_path / "strict")

    assert result.exit_code == INCOMPLETE
    assert "lacks 2 answers. Finish that run, then run this command again." in result.output


@pytest.mark.parametrize(
    ("tools", "shown"),
    [
        ('backend = "web"\n[google_search]\nengine = "serper"\nfee = 0.5', ("serper", 2 * 3 * 10 * 0.5)),
        (
            'backend = "web"\n[google_search]\nengine = "serper"\n[snippet_search]\nfee = 2.0',
            ("semantic_scholar", 120.0),
        ),
        ('backend = "offline"', None),
        ('[remote]\nurl = "http://127.0.0.1:1/mcp"', None),
    ],
)
def test_the_dry_run_counts_all_searches_at_the_price_of_the_dearer_tool(tmp_path, tools, shown):
    (tmp_path / "tools.toml").write_text(tools)
    asked = ("--policy", "openai:own@http://x.example", "--tools", tmp_path / "tools.toml", "--limit", "3")
    result = call("almanac", "--dry-run", "--epochs", "2", "--price", "0,0", "--json", *asked)
    assert result.exit_code == 0, result.output
    found = [one for one in json.loads(result.stdout)["stages"] if one["stage"] == "searches, at most"]
    assert [(one["model"], one["dollars"], one["calls"]) for one in found] == ([(*shown, 60)] if shown else [])


def test_the_dry_run_names_the_models_without_a_price(tmp_path):
    result = call(
        "healthbench",
        "--data",
        SAMPLE,
        "--any-version",
        "--tools",
        "offline",
        "--dry-run",
        "--judge",
        "openai:own@http://x.example",
    )

    assert "No price is known of own." in result.output


@pytest.mark.parametrize(
    ("price", "shown"), [("own=0,0", "add up to $0.00."), ("1", "--price is '1'"), ("own=a,b", "--price is 'a,b'")]
)
def test_the_dry_run_takes_a_price_by_model(price, shown):
    judge = ("--judge", "openai:own@http://x.example")
    result = call(*HEALTHBENCH, "--dry-run", *judge, "--price", price)

    assert shown in f"{result.output}{result.exception}"


STALLED = "<think>I wonder.</think> The river is wide."
ANSWERED = (
    "<think>t</think><structured_plan><deep_analysis>a</deep_analysis><rubric>r</rubric><research_plan>p"
    "</research_plan></structured_plan><review><rubric_review>r</rubric_review><writing_plan>w</writing_plan></review>"
    "<answer>12 m</answer>"
)


@pytest.mark.parametrize("answers", [0, 1])
def test_a_policy_that_never_answers_is_said_everywhere_and_exits_as_where_nothing_is_graded(tmp_path, answers):
    asked = []

    def reply(request):
        asked.append(request)
        return ANSWERED if len(asked) <= answers else STALLED

    with serve_loopback(ModelServer(reply)) as url:
        model = ("--policy", f"openai:m@{url}/v1", "--no-probe", "--concurrency", 1)
        result = call("almanac", *model, "--limit", 3, "--out", tmp_path)

    manifest, scores = (json.loads((tmp_path / name).read_text()) for name in ("run.json", "scores.json"))
    page, sentence = (tmp_path / "report.html").read_text(), "the policy answered no example"
    assert scores["unanswered"] == {"stalled": 3 - answers}
    assert f"{3 - answers} of 3 attempts ended without an answer ({3 - answers} stalled)" in page
    if answers:
        assert result.exit_code == 0
        assert (sentence in page, manifest["warning"]) == (False, "")
        return
    assert result.exit_code == INCOMPLETE
    assert sentence in result.stdout
    assert result.stderr.splitlines()[-1] == (
        "3 of 3 attempts ended without an answer (3 stalled): the policy answered no example, so the numbers say "
        f"nothing about its answers. Its text is in {tmp_path / 'answers.jsonl'}."
    )
    assert sentence in page
    assert "run the same command to resume" not in page
    assert manifest["warning"].startswith(sentence)
    assert sentence in call("report", tmp_path).stdout
    assert sentence in call("rescore", tmp_path).stdout


def test_streams_that_the_server_drops_are_answered_with_concurrency_1(tmp_path):
    """A server that runs one request at a time, and drops the running stream when another comes."""
    running = []

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        mine = object()
        running.append(mine)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        choice = {"index": 0, "delta": {"role": "assistant"}, "finish_reason": None}
        events = [{"choices": [choice]}]
        await asyncio.sleep(0.05)
        if running[-1] is mine:
            events += [
                {"choices": [{"index": 0, "delta": {"content": ANSWERED}, "finish_reason": None}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            ]
        lines = [*(f"data: {json.dumps(event)}\n\n" for event in events), "data: [DONE]\n\n"]
        await send({"type": "http.response.body", "body": "".join(lines).encode()})

    with serve_loopback(app) as url:
        config = EvalConfig(
            benchmark="almanac",
            policy=f"openai:m@{url}/v1",
            limit=4,
            out=tmp_path,
            probe=False,
            retry=RetryPolicy(attempts=1),
        )
        finished = asyncio.run(run_evaluation(plan_run(config)))
        again = call(
            "almanac", "--policy", config.policy, "--limit", 4, "--concurrency", 1, "--no-probe", "--out", tmp_path
        )

    assert len(finished.runner.failures) >= 3
    assert "try --concurrency 1" in hint_of(finished.runner.failures)
    assert hint_of(["example 1: the server answered 503"]) == ""
    assert again.exit_code == 0, again.output
