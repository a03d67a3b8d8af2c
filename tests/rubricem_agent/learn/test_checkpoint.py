"""Checkpoints: whole or not there, never mixed, never silently damaged."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rubricem_agent.learn.checkpoint import (
    CheckpointItem,
    checkpoint_steps,
    find_checkpoint,
    json_part,
    latest_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from rubricem_env.domain.errors import UsageError


def weights(content: bytes = b"weights", step: int = 1) -> CheckpointItem:
    return ("weights.bin", lambda path: path.write_bytes(content) and None, step)


def save(root: Path, step: int = 1, content: bytes = b"weights"):
    state = json_part({"step": step, "rng": 2**90}, file="curriculum.json", step=step)
    return save_checkpoint(root, step=step, parts={"weights": weights(content, step), "curriculum": state})


def test_every_part_comes_back_as_it_was_written(tmp_path):
    save(tmp_path, 600)
    loaded = load_checkpoint(find_checkpoint(tmp_path), step=600)
    assert loaded.step == 600
    assert loaded.path("weights").read_bytes() == b"weights"
    assert loaded.read_json("curriculum") == {"step": 600, "rng": 2**90}


def test_a_buffer_of_another_step_is_not_saved_beside_newer_weights(tmp_path):
    parts = {"weights": weights(step=600), "rubric_buffer": json_part({}, file="buffer.json", step=590)}
    with pytest.raises(UsageError) as refusal:
        save_checkpoint(tmp_path, step=600, parts=parts)
    assert "checkpoint at step 600 holds a rubric buffer of step 590; refusing to mix" in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_nor_is_it_loaded(tmp_path):
    folder = save(tmp_path, 600).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["parts"]["curriculum"]["step"] = 590
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(
        UsageError, match=r"holds a curriculum of step 590; refusing to mix them\. Put the file back, or"
    ):
        load_checkpoint(folder)


def test_the_latest_is_found_and_an_earlier_one_when_asked_for(tmp_path):
    for step in (10, 1_000_000, 9):
        save(tmp_path, step)
    assert checkpoint_steps(tmp_path) == [9, 10, 1_000_000]
    assert find_checkpoint(tmp_path).name == "step-1000000"
    assert find_checkpoint(tmp_path, step=9).name == "step-000009"


def test_a_step_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    with pytest.raises(UsageError, match=r"no checkpoint in .*; there is none"):
        find_checkpoint(tmp_path / "nowhere")
    save(tmp_path, 10)
    with pytest.raises(UsageError, match=r"no checkpoint of step 20 in .*; there are those of steps 10"):
        find_checkpoint(tmp_path, step=20)


def test_a_checkpoint_of_another_step_is_refused(tmp_path):
    with pytest.raises(UsageError, match="is of step 1, and step 2 was asked for"):
        load_checkpoint(save(tmp_path).folder, step=2)


@pytest.mark.parametrize("content", [b"WEIGHTS", b"weights and more", b""])
def test_one_changed_byte_is_noticed(tmp_path, content):
    folder = save(tmp_path).folder
    (folder / "weights.bin").write_bytes(content)
    with pytest.raises(UsageError, match="is not the weights that step 1 wrote"):
        load_checkpoint(folder)


def test_a_part_that_is_gone_is_named(tmp_path):
    folder = save(tmp_path).folder
    (folder / "weights.bin").unlink()
    with pytest.raises(UsageError, match=r"lacks weights.bin, its weights"):
        load_checkpoint(folder)


def test_a_part_that_this_run_never_had_is_refused(tmp_path):
    with pytest.raises(UsageError, match="has no bank; it holds weights, curriculum"):
        save(tmp_path).path("bank")


def edit_manifest(folder: Path, before: str, after: str) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace(before, after))


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        ("{", "", "is no finished checkpoint"),
        ("parts", "part", "is no finished checkpoint"),
        ("weights.bin", "../weights.bin", "is no finished checkpoint"),
        ("weights.bin", "w" * 300, "is no finished checkpoint"),
        ('"format": 1', '"format": 2', "has format 2; this version reads format 1"),
        (
            '"step": 1',
            f'"step": {10**30}',
            "step 1 was asked for. Put the file back, or delete that folder to start again",
        ),
        ('"step": 1,', '"step": -1,', "step 1 was asked for. Put the file back, or delete that folder to start again"),
        ('"sha256": "', '"sha256": "0', "is not the weights that step 1 wrote"),
    ],
)
def test_a_manifest_that_was_edited_is_refused(tmp_path, before, after, refusal):
    folder = save(tmp_path).folder
    edit_manifest(folder, before, after)
    with pytest.raises(UsageError, match=refusal):
        latest_checkpoint(tmp_path)


def test_a_full_disk_leaves_the_old_checkpoint_and_no_rubbish(tmp_path):
    save(tmp_path, 1)

    def fail(path: Path) -> None:
        path.write_bytes(b"wei")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(UsageError, match=r"cannot write the checkpoint of step 2 to .*: No space left on device"):
        save_checkpoint(tmp_path, step=2, parts={"weights": ("weights.bin", fail, 2)})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert load_checkpoint(find_checkpoint(tmp_path)).step == 1


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 1, b"old")
    save(tmp_path, 1, b"new")
    assert load_checkpoint(find_checkpoint(tmp_path)).path("weights").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path):
    folder = save(tmp_path, 1, b"old").folder
    folder.rename(folder.with_suffix(".replaced"))
    assert load_checkpoint(find_checkpoint(tmp_path)).path("weights").read_bytes() == b"old"
    save(tmp_path, 2)
    assert checkpoint_steps(tmp_path) == [1, 2]
    assert find_checkpoint(tmp_path, step=1) == folder


def test_what_a_killed_save_left_is_cleared_away_by_the_next(tmp_path):
    folder = save(tmp_path, 1).folder
    (tmp_path / "step-000002.partial").mkdir()
    (tmp_path / "step-000001.replaced").mkdir()
    assert find_checkpoint(tmp_path) == folder
    save(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000001", "step-000002"]


SAVE_FOREVER = """
import itertools, pathlib, sys
from rubricem_agent.learn.checkpoint import save_checkpoint
for turn in itertools.count():
    print(turn, flush=True)
    step = turn % 3 + 1
    part = ("weights.bin", lambda path: path.write_bytes(b"x" * 50_000) and None, step)
    save_checkpoint(pathlib.Path(sys.argv[1]), step=step, parts={"weights": part})
"""


@pytest.mark.parametrize("begun", [1, 4, 20])
def test_a_run_killed_while_saving_leaves_only_whole_checkpoints(tmp_path, begun):
    with subprocess.Popen([sys.executable, "-c", SAVE_FOREVER, str(tmp_path)], stdout=subprocess.PIPE) as run:
        assert run.stdout
        for _ in range(begun):
            run.stdout.readline()
        run.kill()
    assert len(checkpoint_steps(tmp_path)) >= min(begun - 1, 3)
    for step in checkpoint_steps(tmp_path):
        assert load_checkpoint(find_checkpoint(tmp_path, step=step), step=step).step == step
    save(tmp_path, 7)
    assert load_checkpoint(find_checkpoint(tmp_path)).step == 7


def test_a_state_with_nan_in_it_is_not_saved():
    with pytest.raises(UsageError, match=r"the state for bank.json of step 3 cannot be saved"):
        json_part({"utility": float("nan")}, file="bank.json", step=3)


@pytest.mark.parametrize(("others", "way_out"), [((), "start again"), ((3,), "resume from step 3")])
def test_a_checkpoint_that_lost_its_manifest_is_not_passed_over(tmp_path, others, way_out):
    for step in (5, *others):
        save(tmp_path, step)
    (tmp_path / "step-000005" / "manifest.json").unlink()
    with pytest.raises(UsageError, match=f"step-000005 has lost its manifest.json.* to {way_out}"):
        latest_checkpoint(tmp_path)


def test_nothing_saved_yet_and_a_save_that_was_killed_are_no_damage(tmp_path):
    assert latest_checkpoint(tmp_path / "nowhere") is None
    (tmp_path / "step-000002.partial").mkdir()
    assert latest_checkpoint(tmp_path) is None


def test_what_a_reader_of_a_part_raises_is_a_sentence_and_our_own_refusal_stays(tmp_path):
    checkpoint = save(tmp_path)
    with (
        pytest.raises(UsageError, match=r"could not restore .*: KeyError: 'rng'\. Put the file back"),
        checkpoint.restoring(),
    ):
        raise KeyError("rng")
    with pytest.raises(UsageError, match=r"^own$"), checkpoint.restoring():
        raise UsageError("own")
