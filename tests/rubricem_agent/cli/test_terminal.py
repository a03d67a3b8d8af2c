"""Every command speaks in three forms: to people, to scripts with --quiet, to programs with --json."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.cli.terminal import Terminal, inert, plain_table, to_json
from rubricem_env.testing.judges import attempt, careless
from tests.fakes import make_reflection

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests" / "fixtures" / "benchmarks"
TRAJECTORY = ROOT / "tests" / "golden" / "clean_run.json"
# `rubricem_agent.cli.terminal` is imported under a pseudo-terminal: no test runner stands between.
PAINTS = (
    "from rubricem_agent.cli.terminal import Terminal, plain_table; table = plain_table('[red]a[/red]'); "
    "table.add_row('[red]b[/red]'); Terminal().show(table)"
)


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """A folder with what the commands below read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, trajectory in (("a.json", attempt()), ("b.json", careless())):
        Path(name).write_text(trajectory.model_dump_json(), encoding="utf-8")
    labelled = {
        "trajectory": json.loads(Path("a.json").read_text(encoding="utf-8")),
        "rubric": {"title": "Says 60 m", "description": "Gives a width.", "weight": 1},
        "label": 2,
    }
    Path("labels.jsonl").write_text(json.dumps(labelled), encoding="utf-8")
    Path("scores.json").write_text('{"scores": [[1, 0.5, 0, 1], [0, 0.5, 0, 0.5]]}', encoding="utf-8")
    CliRunner().invoke(app, ["eval", "almanac", "--policy", "expert", "--limit", "2", "--out", "run"])
    CliRunner().invoke(app, ["data", "teach", "--out", "taught", "--limit", "2"])
    return tmp_path


COMMANDS = [
    ("demo",),
    ("ask", "How wide is the river Tall Fox?"),
    ("judge", "a.json", "b.json"),
    ("calibrate", "labels.jsonl"),
    ("credit", "scores.json"),
    ("inspect", str(TRAJECTORY)),
    ("parity", str(FIXTURES / "simpleqa.dev.jsonl")),
    ("doctor",),
    ("tools", "call", "google_search", "Tall Fox width"),
    ("data", "dry-run", "--teacher", "gemini:gemini-3.1-pro-preview", "--limit", "2"),
    ("data", "teach", "--out", "taught", "--limit", "2"),
    ("data", "report", "taught"),
    ("eval", "almanac", "--policy", "expert", "--limit", "2", "--out", "run"),
    ("eval", "almanac", "--policy", "expert", "--limit", "2", "--out", "new", "--dry-run"),
    ("eval", "report", "run"),
    ("eval", "rescore", "run"),
    ("eval", "list"),
]


def test_json_is_one_document_quiet_is_no_longer_than_what_people_get_and_nothing_else_is_on_the_streams(prepared):
    told = {}
    for words in COMMANDS:
        for form in ("--json", "--quiet", ""):
            result = CliRunner().invoke(app, [*words, *([form] if form else [])])
            told[words, form] = result
            assert isinstance(result.exception, SystemExit | None), (words, form, result.exception)
            assert "\x1b" not in result.output
        assert told[words, "--json"].stdout, (words, told[words, "--json"].exception)
        assert json.loads(told[words, "--json"].stdout), words
        assert told[words, "--json"].stdout.count("\n") == 1, words
        assert told[words, "--json"].stderr == told[words, "--quiet"].stderr == "", words
        assert len(told[words, "--quiet"].stdout) <= len(told[words, ""].stdout), words


def test_parity_prints_agreed_over_total_and_exits_with_2_for_an_unreadable_file(tmp_path):
    path = str(FIXTURES / "simpleqa.dev.jsonl")
    result = CliRunner().invoke(app, ["parity", path, str(tmp_path / "absent.jsonl")])
    assert result.exit_code == 2
    assert result.stdout == f"{path}: 24/24\n"
    assert "cannot be read" in result.output


@pytest.mark.parametrize("form", ["--json", "--quiet"])
def test_a_bank_speaks_in_all_forms(tmp_path, form):
    pytest.importorskip("chromadb", reason="the extra `bank` is not installed")
    lessons = tmp_path / "in.jsonl"
    lessons.write_text(make_reflection("How wide is the river Tall Fox?").model_dump_json(), encoding="utf-8")
    for words in (
        ("import", str(lessons), "--embedder", "hashing"),
        ("list",),
        ("show", "1"),
        ("search", "How wide is the river Tall Fox?"),
        ("stats",),
        ("export", str(tmp_path / "out.jsonl")),
        ("quarantine", "1"),
        ("approve", "1"),
        ("remove", "1"),
    ):
        result = CliRunner().invoke(app, ["bank", *words, "--bank", str(tmp_path / "bank"), form])
        assert result.exit_code == 0, (words, result.exception)
        assert result.stdout.strip(), words
        if form == "--json":
            assert json.loads(result.stdout), words


def painted(code: str = PAINTS, **environment: str) -> str:
    """What a program shows on a terminal."""
    shown, here = pty.openpty()
    environ = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", **environment}
    subprocess.run([sys.executable, "-c", code], stdout=here, stderr=here, cwd=ROOT, env=environ, check=True)
    os.close(here)
    with os.fdopen(shown, "rb") as stream:
        return stream.read1(4096).decode()


def test_colour_comes_on_a_terminal_and_not_in_a_file_or_where_no_color_is_set():
    assert "\x1b[31m" in painted()
    assert "\x1b[31m" not in painted(NO_COLOR="1")
    done = subprocess.run([sys.executable, "-c", PAINTS], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "\x1b" not in done.stdout


def test_a_bar_is_shown_on_a_terminal_alone_and_not_where_quiet_is_asked_for(capsys):
    code = (
        "import time; from rubricem_agent.cli.terminal import Terminal; terminal = Terminal(is_quiet={quiet}); "
        "bar = terminal.bar('traces', 2); advance = bar.__enter__(); advance(1); time.sleep(0.3); "
        "bar.__exit__(None, None, None); terminal.close(1, brief='done')"
    )
    assert "traces" in painted(code.format(quiet=False))
    assert painted(code.format(quiet=True)).strip() == "done"
    with Terminal().bar("traces", 2) as advance:
        advance(1)
    assert capsys.readouterr() == ("", "")


def test_a_row_is_not_folded_where_nobody_watches(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    Terminal().show(plain_table("name", rows=[["x" * 150]]))
    assert "x" * 150 in capsys.readouterr().out


def test_text_of_others_has_neither_markup_nor_control_characters():
    assert inert("\x1b[2J[red]wide[/red]\u202e") == " [2J\\[red]wide\\[/red] "


def test_a_document_with_nan_is_refused():
    with pytest.raises(ValueError, match="Out of range float"):
        to_json({"score": float("nan")})


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [({"as_json": True, "is_quiet": True}, '{"n": 1}\n'), ({"is_quiet": True}, "1\n"), ({}, "n 1\n")],
)
def test_the_result_has_three_forms(capsys, flags, wanted):
    Terminal(**flags).close({"n": 1}, {"n": 1}, brief="1")
    assert capsys.readouterr().out.split() == wanted.split()
