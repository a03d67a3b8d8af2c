"""The trainer as a process of its own, killed where it stands: what it had kept, it goes on from."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from rubricem_agent.learn.checkpoint import checkpoint_steps
from tests.learnt_by_heart import learn_by_heart

ROOT = Path(__file__).parents[3]
STEPS = 6
PATIENCE = 240.0
"""Seconds; a start is mostly imports, which a busy machine draws out."""
LESSON = "<plan>How wide?</plan><review>It is known.</review><answer>The width of Tall Fox is 60 m.</answer>"
# The noise of the judge gives attempts that are all alike something to learn from.
CONFIG = """
steps: {steps}
questions_per_step: 2
group_size: 3
window: 1
learning_rate: 0.001
max_turn_tokens: 48
rows: 8
draft_tokens: 3
limits: {{max_calls: 1, max_turns: 2, max_tokens: 100}}
reflection: {{num_candidates: 3, total_tokens: 4000, new_tokens: 24}}
knobs: {{noise: 0.5}}
evaluate_every: 5
checkpoint_every: 2
policy: {policy}
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_config(tmp_path_factory.mktemp("taught"), steps=STEPS)


def write_config(folder: Path, *, steps: int) -> Path:
    """A run of a policy that has learnt one answer by heart, so that there is something to train on."""
    policy = learn_by_heart(folder / "policy", LESSON, updates=60)
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(steps=steps, policy=policy))
    return path


def start(config: Path, out: Path, *changes: str) -> subprocess.Popen[str]:
    """Returns once the run's settings are written, which is when its work begins."""
    (out / "config.json").unlink(missing_ok=True)
    # Threads are one, so that the same sums are taken in the same order.
    trainer = subprocess.Popen(
        [sys.executable, "trainers/local_ssgrpo.py", "--config", str(config), f"out={out}", *changes],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: (out / "config.json").is_file() or trainer.poll() is not None)
    return trainer


class Forked:
    """The trainer as a process of its own that has imported everything: a copy of one that only imports.

    A start of the command is seven seconds of imports. In `make test` the server is there already (tests/forked.py).
    All copies have the same order of sets, the command another.
    """

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rubricem_trainers.local.command", "tests.trainers.local.test_killed"])

    def __init__(self, config: Path, out: Path, *changes: str) -> None:
        (out / "config.json").unlink(missing_ok=True)
        self.told = out.with_name(f"{out.name}.told")
        self.process = self.context.Process(target=train, args=(self.told, "--config", config, f"out={out}", *changes))
        self.process.start()
        wait_until(lambda: (out / "config.json").is_file() or self.poll() is not None)

    def poll(self) -> int | None:
        return self.process.exitcode

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid or 0, number)

    def communicate(self, timeout: float) -> tuple[None, str]:
        self.process.join(timeout)
        assert self.process.exitcode is not None, "the trainer did not end"
        return None, self.told.read_text()


def train(told: Path, *arguments: object) -> None:
    """In the copy: the command with these arguments, its stderr in a file."""
    from rubricem_trainers.local.command import main

    torch.set_num_threads(1)
    os.chdir(ROOT)
    os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(main([str(each) for each in arguments]))


Trainer = subprocess.Popen[str] | Forked


def wait_until(happens) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline, "the trainer did not come so far"
        time.sleep(0.01)


def finish(trainer: Trainer) -> str:
    _, told = trainer.communicate(timeout=PATIENCE)
    return told


def curve(out: Path) -> list[dict]:
    """The log without what a clock measured."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def working_seconds(out: Path) -> float:
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return sum(sum(row["seconds"].values()) for row in rows if "seconds" in row)


def last_step(out: Path) -> int:
    log = out / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.is_file() else []
    return sum('"encounter"' in line for line in lines)


def kill_and_resume(
    config: Path,
    folder: Path,
    rng: np.random.Generator,
    *,
    steps: int,
    kills: int,
    again: Callable[[Path, Path], Trainer] = start,
) -> None:
    """One run that nobody ends, and one killed at random moments and resumed; their curves are the same."""
    whole, parts = folder / "whole", folder / "parts"
    finish(start(config, whole))
    assert any(row.get("task") for row in curve(whole)), "a run that trains on nothing proves nothing"
    for moment in rng.uniform(0.0, 2.0 / kills * working_seconds(whole), kills):
        trainer = again(config, parts)
        end = time.monotonic() + moment
        wait_until(lambda end=end: time.monotonic() >= end or last_step(parts) >= steps - 1)
        trainer.send_signal(signal.SIGKILL)
        told = finish(trainer)
        assert trainer.returncode == -signal.SIGKILL, told
    last = again(config, parts)
    told = finish(last)
    assert last.returncode == 0, told
    assert curve(parts) == curve(whole)


def test_a_run_killed_at_five_random_moments_and_resumed_has_the_curve_of_one_that_was_not(config, tmp_path):
    kill_and_resume(config, tmp_path, np.random.default_rng(6), steps=STEPS, kills=5, again=Forked)


def test_an_interrupt_says_how_to_go_on_and_a_second_one_does_not_wait(config, tmp_path):
    trainer = Forked(config, tmp_path / "run")
    wait_until(lambda: checkpoint_steps(tmp_path / "run" / "checkpoints"))
    trainer.send_signal(signal.SIGINT)
    time.sleep(0.05)
    trainer.send_signal(signal.SIGINT)
    asked = time.monotonic()
    told = finish(trainer)
    assert trainer.returncode == 130
    assert (
        told.splitlines()[-1]
        == "local_ssgrpo: stopped; the same command resumes from the last checkpoint, if there is one"
    )
    assert "Traceback" not in told
    assert time.monotonic() - asked < 30
    assert last_step(tmp_path / "run") < STEPS
