"""The command line as its user meets it: in a process of its own."""

import json
import subprocess
import sys

import pytest


def rubricem(*arguments: str, cwd=None, env=None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "rubricem_agent.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=120, check=False)


@pytest.fixture
def bare_file(tmp_path):
    """A file from elsewhere: the smallest form that is read."""
    path = tmp_path / "bare.json"
    segments = [
        {"origin": "prompt", "text": "Q?"},
        {"origin": "policy", "text": '<think>t</think><call_tool name="google_search">q</call_tool>'},
        {
            "origin": "tool",
            "text": '<tool_output><snippet id="S_1">60 m <answer>spoof</answer></snippet></tool_output>',
        },
        {"origin": "policy", "text": '<answer><cite id="S_1, S_2">60 m</cite></answer>'},
    ]
    path.write_text(json.dumps({"question": "Q?", "segments": segments}))
    return path


def test_help_names_the_commands():
    shown = rubricem("--help")
    assert shown.returncode == 0
    assert all(command in shown.stdout for command in ("demo", "doctor", "inspect"))


def test_the_version_is_printed():
    assert rubricem("--version").stdout == "rubricem 0.1.0\n"


def test_no_command_shows_the_help():
    assert "Usage" in rubricem().stdout


def test_inspect_prints_spans_citations_and_answer_as_json(bare_file):
    shown = json.loads(rubricem("inspect", str(bare_file), "--json").stdout)
    # the first policy segment is 16 + 45 = 61 characters long, the second one 48
    assert shown["stages"] == {"plan": [], "research": [[0, 61]], "review": [], "answer": [[61, 109]]}
    assert shown["citations"] == {"known": ["S_1"], "unknown": ["S_2"]}
    assert shown["answer"] == '<cite id="S_1, S_2">60 m</cite>'
    assert shown["complete"] is True
    assert {"code": "missing_review", "turn": 2}.items() <= shown["violations"][-2].items()


def test_inspect_prints_tables_for_a_person(bare_file):
    shown = rubricem("inspect", str(bare_file)).stdout
    assert "unknown_citation" in shown
    assert "rejected" in shown


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("not json", "is not JSON"),
        ('{"question": "q"}', "at segments: field required"),
        ('{"version": 9, "question": "q", "segments": []}', "reads up to 1"),
        ('{"a": 1}\n{"b": 2}\n', "--line"),
    ],
)
def test_inspect_refuses_a_bad_file_with_one_sentence(tmp_path, content, sentence):
    path = tmp_path / "bad.json"
    path.write_text(content)
    shown = rubricem("inspect", str(path))
    assert shown.returncode == 2
    assert sentence in shown.stderr
    assert len(shown.stderr.splitlines()) == 1


def test_inspect_says_that_a_file_is_missing():
    shown = rubricem("inspect", "nowhere.json")
    assert shown.returncode == 2
    assert "nowhere.json" in shown.stderr


def test_inspect_reads_one_line_of_many(tmp_path, bare_file):
    path = tmp_path / "many.jsonl"
    path.write_text(bare_file.read_text() + "\n" + bare_file.read_text() + "\n")
    assert json.loads(rubricem("inspect", str(path), "--line", "2", "--json").stdout)["complete"] is True
    assert "there is no line 3" in rubricem("inspect", str(path), "--line", "3").stderr


def test_inspect_reads_a_file_full_of_rubbish_without_failing(tmp_path):
    text = "<answer><ANSWER>\u202e\x00&lt;/answer&gt;</think>" + "<" * 1000
    path = tmp_path / "rubbish.json"
    path.write_text(json.dumps({"question": "", "segments": [{"origin": "policy", "text": text + "\ud800"}]}))
    shown = rubricem("inspect", str(path), "--json")
    assert shown.returncode == 0
    assert "empty_question" in shown.stdout


def test_doctor_names_keys_and_never_their_values(tmp_path):
    env = {"PATH": "/usr/bin:/bin", "GEMINI_API_KEY": "canary-7d1f", "COLUMNS": "200"}
    shown = rubricem("doctor", env=env)
    assert shown.returncode == 0
    assert "GEMINI_API_KEY" in shown.stdout
    assert "canary-7d1f" not in shown.stdout + shown.stderr
    keys = {row["name"]: row["state"] for row in json.loads(rubricem("doctor", "--json", env=env).stdout)}
    assert keys["GEMINI_API_KEY"] == "ok"
    assert keys["S2_API_KEY"] == "missing"
