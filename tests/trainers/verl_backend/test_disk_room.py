"""A run whose disk fills up is warned of it, and stops with its last checkpoint whole."""

import json
import random
import shutil
import subprocess

import pytest

from rubricem_env.domain.errors import UsageError
from rubricem_env.judge.judgements import RolloutJudgement
from rubricem_env.judge.scoring import score_trajectory
from rubricem_env.testing.judges import attempt
from rubricem_records.files.packed_lines import read_packed
from rubricem_records.rollouts.rollouts import Rollout
from rubricem_records.rollouts.run_record import GroupEntry, RolloutEntry
from rubricem_records.rollouts.run_recorder import RunRecorder
from rubricem_records.runs.run_log import append_line
from trainers.verl_backend.disk_room import DiskRoom


@pytest.fixture
def run(tmp_path):
    """A run with a checkpoint of 1,000 bytes."""
    actor = tmp_path / "global_step_10" / "actor"
    actor.mkdir(parents=True)
    (actor / "model.pt").write_bytes(b"x" * 1_000)
    return tmp_path


def test_a_checkpoint_that_the_disk_has_no_room_for_is_not_begun(run):
    DiskRoom(run, free=lambda folder: 1_000).refuse()
    with pytest.raises(UsageError, match="step 10 is whole"):
        DiskRoom(run, free=lambda folder: 999).refuse()


def test_before_the_first_checkpoint_its_size_is_unknown(tmp_path):
    DiskRoom(tmp_path, free=lambda folder: 0).refuse()


def test_a_shortage_is_said_once_as_long_as_it_lasts(run):
    said = []
    rooms = iter((1_000, 900, 800, 1_000, 700))
    room = DiskRoom(run, free=lambda folder: next(rooms), say=said.append)
    for _ in range(5):
        room.watch()
    assert len(said) == 2
    assert "will stop before its next one" in said[0]


@pytest.fixture
def small_disk(tmp_path):
    """A real disk of 256 KiB, where this process may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_full_between_checkpoints_stops_the_run_and_leaves_no_half_line(small_disk):
    recorder = RunRecorder(small_disk / "record")
    recorder.begin(0, embedder="hashing")
    noise = random.Random(0).randbytes(30_000).hex()
    judged = RolloutJudgement(judgement=score_trajectory((), (), rubric_scores={}))
    played = Rollout(trajectory=attempt(page=noise), policy="scripted")

    def train():
        for step in range(1, 100):
            group = GroupEntry(step=step, place=0, query_key="k", question="?")
            entry = RolloutEntry(step=step, place=0, attempt=0, rollout=played, judged=judged)
            recorder.record_step([(group, [entry])])
            append_line(small_disk / "metrics.jsonl", {"step": step})

    with pytest.raises(UsageError, match=r"No space left on device.*Make room"):
        train()
    written = [json.loads(line)["step"] for line in read_packed(small_disk / "record" / "rollouts.jsonl.gz")]
    index = (small_disk / "record" / "rollouts.index.jsonl").read_text().splitlines()[1:]
    assert written == list(range(1, len(written) + 1))
    assert [json.loads(line)["step"] for line in index] == written[: len(index)]
    assert (small_disk / "metrics.jsonl").read_text().endswith("}\n")
    (small_disk / "metrics.jsonl").unlink()
    recorder.begin(1, embedder="hashing")  # room was made: the run resumes from step 1
    assert len(list(read_packed(small_disk / "record" / "rollouts.jsonl.gz"))) == 1
