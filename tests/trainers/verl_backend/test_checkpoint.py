"""Old checkpoints are deleted whole; those later than the current step stay."""

import pytest

from rubricem_agent.learn.checkpoint import json_part, save_checkpoint
from rubricem_env.domain.errors import UsageError
from trainers.verl_backend.checkpoint import FOLDER, check_identity, prune
from trainers.verl_backend.saved_steps import MARKER, marked_step


@pytest.fixture
def run(tmp_path):
    """A run saved at four steps, of which the third lost its weights, and things that are not ours."""
    for step in (10, 20, 30, 40):
        (tmp_path / f"global_step_{step}" / "actor").mkdir(parents=True)
        save_checkpoint(tmp_path / FOLDER, step=step, parts={"stream": json_part({}, file="stream.json", step=step)})
    (tmp_path / "global_step_30" / "actor").rmdir()
    (tmp_path / "global_step_30").rmdir()
    (tmp_path / "global_step_best").mkdir()
    (tmp_path / "metrics.jsonl").write_text("")
    return tmp_path


def left(run):
    ours = {path.name for path in (run / FOLDER).iterdir()}
    return {path.name for path in run.glob("global_step_*")}, ours


def test_the_latest_are_kept_with_both_their_parts(run):
    prune(run, step=40, keep=2)
    assert left(run) == ({"global_step_40", "global_step_best"}, {"step-000030", "step-000040"})
    assert (run / "metrics.jsonl").is_file()


def test_later_ones_are_not_counted_by_a_run_that_went_back(run):
    prune(run, step=20, keep=1)
    assert left(run)[1] == {"step-000020", "step-000030", "step-000040"}
    assert (run / "global_step_20").is_dir()


@pytest.mark.parametrize("keep", [None, 9])
def test_all_are_kept_where_nothing_else_is_said(run, keep):
    before = left(run)
    prune(run, step=40, keep=keep)
    assert left(run) == before


@pytest.mark.parametrize("content", [b"", b"six", b"-1", b"1e3", b"1_0", b"9" * 5000, "٣".encode(), b"\xff"])
def test_a_marker_of_verl_that_names_no_step_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / MARKER).write_bytes(content)
    with pytest.raises(UsageError, match="in place of the last saved step"):
        marked_step(tmp_path / MARKER)


def test_the_step_that_verl_resumes_from_is_read(tmp_path):
    (tmp_path / MARKER).write_text("20\n")
    assert marked_step(tmp_path / MARKER) == 20


def test_a_step_without_our_state_is_refused_with_the_file_that_names_another(run):
    with pytest.raises(UsageError, match=rf"there are those of steps 10, .* write its number into {run / MARKER}"):
        check_identity(run / FOLDER, step=50, identity={})
