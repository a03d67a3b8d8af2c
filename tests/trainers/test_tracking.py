"""Trackers get every number of a run: TensorBoard, W&B and Trackio with the real packages, MLflow by its interface."""

import json
import re
import sqlite3
import sys
import time
from contextlib import ExitStack, closing

import pytest

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import ConfigError
from rubricem_env.testing.loopback import serve_loopback
from rubricem_records.runs.log_lines import EvaluationLine, StepLine
from trainers.tracking import open_trackers

SCORES = {str(stage): place / 4 for place, stage in enumerate(STAGES)}
STEPS = [
    StepLine(step=step, encounter="new", true=SCORES, judged=SCORES, bank=step, seconds={"sample": 1.0})
    for step in (1, 2)
]
EXAM = EvaluationLine(step=2, held_out=SCORES, valid=0.9)


def track(out, *lines, chosen):
    with ExitStack() as stack:
        (tracker,) = open_trackers(out, chosen, closing=stack)
        for line in lines:
            tracker(line)


def test_tensorboard_reads_the_scores_of_every_stage_by_step(tmp_path):
    events = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="needs pip install 'rubricem[track]'"
    )
    track(tmp_path / "run", *STEPS, EXAM, chosen=["tensorboard"])

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

    track(tmp_path / "run", *STEPS, EXAM, chosen=["wandb"])

    (written,) = (tmp_path / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    # W&B's own process writes the end of the file after `finish`.
    until = time.monotonic() + 30
    while b"held_out" not in (content := written.read_bytes()) and time.monotonic() < until:
        time.sleep(0.05)
    assert all(re.search(rb"held_out/" + stage.encode(), content) for stage in SCORES)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
    assert capfd.readouterr() == ("", "")


class MlflowServer:
    """The calls of MLflow's REST interface that a run makes."""

    def __init__(self):
        self.called = []

    async def __call__(self, scope, receive, send):
        body = (await receive()).get("body", b"") if scope["type"] == "http" else b""
        if scope["type"] != "http":
            return
        call = scope["path"].removeprefix("/api/2.0/mlflow/")
        self.called.append((call, json.loads(body or b"{}")))
        missing = call == "experiments/get-by-name"
        run = {"info": {"run_id": "r1", "experiment_id": "7", "status": "RUNNING", "artifact_uri": ""}, "data": {}}
        reply = {"experiment_id": "7", "run": run, "run_info": run["info"]}
        text = json.dumps({"error_code": "RESOURCE_DOES_NOT_EXIST"} if missing else reply).encode()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 404 if missing else 200, "headers": headers})
        await send({"type": "http.response.body", "body": text})


@pytest.mark.filterwarnings("default")  # the package's own
def test_mlflow_gets_every_number_of_a_step_on_the_server_of_its_variable(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs pip install 'rubricem[track]'")
    server = MlflowServer()
    with serve_loopback(server) as url:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        track(tmp_path / "run", EXAM, chosen=["mlflow"])

    calls = dict(server.called)
    assert calls["experiments/create"]["name"] == "rubricem"
    assert calls["runs/create"]["run_name"] == "run"
    told = {one["key"]: (one["value"], int(one["step"])) for one in calls["runs/log-batch"]["metrics"]}
    # SCORES by truth, and the share of valid attempts.
    assert told == {**{f"held_out/{stage}": (score, 2) for stage, score in SCORES.items()}, "held_out/valid": (0.9, 2)}
    assert calls["runs/update"]["status"] == "FINISHED"


def test_an_unknown_tracker_is_answered_with_the_names(tmp_path):
    with pytest.raises(ConfigError, match="--track neptune: there is no such tracker"):
        track(tmp_path / "run", EXAM, chosen=["neptune"])


def test_mlflow_without_a_server_is_refused(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError, match="MLflow needs a server: start `mlflow server` and set MLFLOW_TRACKING_URI"):
        track(tmp_path / "run", EXAM, chosen=["mlflow"])


@pytest.mark.filterwarnings("default")  # the package's own
def test_trackio_writes_a_database_in_the_run_and_leaves_the_terminal_alone(tmp_path, monkeypatch, capfd):
    # Read by trackio when it is imported.
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "run" / "trackio"))
    pytest.importorskip("trackio", reason="needs pip install 'rubricem[track]'")
    capfd.readouterr()
    track(tmp_path / "run", *STEPS, EXAM, chosen=["trackio"])

    with closing(sqlite3.connect(tmp_path / "run" / "trackio" / "rubricem.db")) as database:
        rows = database.execute("SELECT step, metrics FROM metrics ORDER BY id").fetchall()
    assert [(step, json.loads(metrics).get("true/plan")) for step, metrics in rows] == [(1, 0.0), (2, 0.0), (2, None)]
    assert capfd.readouterr().out == ""


class RecordingWandb:
    """Stands in for the wandb package: the offline run of a test."""

    def __init__(self):
        self.logged = []
        self.settings = {}
        self.Settings = dict

    def init(self, **settings):
        self.settings = settings
        return self

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.logged.append("finished")


def test_wandb_is_fed_offline_and_closed(tmp_path, monkeypatch):
    wandb = RecordingWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)

    track(tmp_path / "run", EvaluationLine(step=8, held_out={"answer": 0.5}, valid=0.9), chosen=["wandb"])

    assert wandb.settings["mode"] == "offline"
    assert wandb.settings["settings"] == {"silent": True, "console": "off"}
    assert wandb.logged == [(8, {"held_out/answer": 0.5, "held_out/valid": 0.9}), "finished"]


def test_wandb_is_online_when_its_variable_asks_for_it(tmp_path, monkeypatch):
    wandb = RecordingWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setenv("WANDB_MODE", "online")
    track(tmp_path / "run", EXAM, chosen=["wandb"])
    assert wandb.settings["mode"] == "online"
