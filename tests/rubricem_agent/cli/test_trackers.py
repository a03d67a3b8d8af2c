"""The real packages of the extra `track`: what they write is there to be read, and nothing leaves the machine."""

import re

import pytest

from rubricem_agent.build.training import open_trackers, scalars
from rubricem_agent.learn.metrics import EvaluationLine, StepLine
from rubricem_env.domain.base import STAGES

SCORES = {stage.value: place / 4 for place, stage in enumerate(STAGES)}
STEPS = [
    StepLine(step=step, encounter="new", true=SCORES, judged=SCORES, bank=step, seconds={"sample": 1.0})
    for step in (1, 2)
]
EXAM = EvaluationLine(step=2, held_out=SCORES, valid=0.9)


def track(out, **chosen):
    (tracker,) = open_trackers(out, **{"tensorboard": False, "wandb": False, **chosen})
    for line in (*STEPS, EXAM):
        tracker.record(line.step, scalars(line))
    tracker.close()


def test_tensorboard_reads_the_scores_of_every_stage_by_step(tmp_path):
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs pip install 'rubricem[track]'"
    )
    track(tmp_path / "run", tensorboard=True)

    read = events.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()

    for stage, score in SCORES.items():
        assert [(event.step, event.value) for event in read.Scalars(f"true/{stage}")] == [(1, score), (2, score)]
        assert [(event.step, event.value) for event in read.Scalars(f"held_out/{stage}")] == [(2, score)]


@pytest.mark.filterwarnings("default")  # the package's own
def test_wandb_writes_an_offline_run_and_no_key_and_leaves_the_terminal_alone(tmp_path, monkeypatch, capfd):
    pytest.importorskip("wandb", reason="needs pip install 'rubricem[track]', 62 MB")
    key = "c0ffee" * 6 + "cafe"
    for name, value in {"HOME": str(tmp_path), "WANDB_API_KEY": key}.items():
        monkeypatch.setenv(name, value)
    capfd.readouterr()

    track(tmp_path / "run", wandb=True)

    (written,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    content = written.read_bytes()
    assert all(re.search(rb"held_out/" + stage.encode(), content) for stage in SCORES)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    assert capfd.readouterr() == ("", "")
