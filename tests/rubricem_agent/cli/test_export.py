"""`rubricem export atif` as its user meets it, and what reads the files back."""

import json
from itertools import islice
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.cli.shown_run import open_shown_run
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.trajectory import dump_trajectory
from rubricem_env.testing.judges import attempt, careless
from rubricem_records.files.packed_lines import read_packed
from rubricem_records.rollouts.attempts import read_attempts

RUN = Path(__file__).parents[2] / "samples" / "viewer_run"


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def exported(tmp_path):
    out = tmp_path / "atif"
    result = run("export", "atif", RUN, "-o", out, "--json")
    assert json.loads(result.stdout) == {"folder": str(out), "attempts": 32, "format": "ATIF-v1.8"}
    return out


def test_each_attempt_is_one_file_by_the_name_that_the_viewer_gives_it(exported):
    assert {file.stem for file in exported.iterdir()} == {one.name for one in read_attempts(RUN)}


def test_judge_and_inspect_read_the_files_and_the_record_they_were_made_of(exported, tmp_path):
    group = sorted(exported.glob("1-0-*.json"))
    lines = tmp_path / "group.jsonl"
    lines.write_bytes(b"".join(islice(read_packed(RUN / "record" / "rollouts.jsonl.gz"), len(group))))
    judged = [json.loads(run("judge", "--json", *files).stdout) for files in (group, [lines])]
    assert len(judged[0]["trajectories"]) == len(group)
    from_files, from_lines = ([one["stages"] for one in found["trajectories"]] for found in judged)
    assert from_files == from_lines
    inspected = [run("inspect", "--json", *one).stdout for one in ([group[0]], [lines, "--line", "1"])]
    assert inspected[0] == inspected[1]


def test_report_shows_the_files_with_their_scores(exported):
    assert run("report", exported, "--quiet").exit_code == 0
    again = (exported / "report.html").read_text(encoding="utf-8")
    entry = next(one.entry for one in read_attempts(RUN) if one.entry.rollout.parsed.answer)
    assert entry.judged.rubric_scores[0].justification[:40] in again


def test_what_view_shows_is_a_run_while_it_is_open_and_gone_afterwards(exported, tmp_path):
    with open_shown_run(exported) as folder:
        assert len(list(read_attempts(folder))) == 32
    assert not folder.exists()
    file = next(exported.iterdir())
    with open_shown_run(file) as folder:
        assert len(list(read_attempts(folder))) == 1


def test_a_run_and_a_folder_of_runs_are_shown_as_they_are(tmp_path):
    (tmp_path / "trajectory.json").write_text(dump_trajectory(attempt()))
    (tmp_path / "run").symlink_to(RUN)
    for folder in (RUN, tmp_path):
        with open_shown_run(folder) as shown:
            assert shown == folder


def test_trajectories_of_a_file_keep_apart(tmp_path):
    file = tmp_path / "two.jsonl"
    file.write_text("\n".join(map(dump_trajectory, (attempt(), careless()))))
    assert run("export", "atif", file, "-o", tmp_path / "out").exit_code == 0
    assert [one.trajectory for one in read_attempts(tmp_path / "out")] == [attempt(), careless()]


def test_what_holds_no_attempts_is_refused(tmp_path):
    for source in (tmp_path, tmp_path / "nowhere"):
        assert isinstance(run("export", "atif", source, "-o", tmp_path / "out").exception, FileFormatError)
    (tmp_path / "in the way").write_text("")
    result = run("export", "atif", RUN, "-o", tmp_path / "in the way")
    assert isinstance(result.exception, UsageError)
