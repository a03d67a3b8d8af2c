"""Old checkpoints are deleted whole; those later than the current step stay."""

import pytest

from rubricem_agent.learn.checkpoint import json_part, save_checkpoint
from trainers.verl_backend.checkpoint import FOLDER, prune


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
