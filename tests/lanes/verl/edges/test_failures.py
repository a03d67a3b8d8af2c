"""One run that is stopped four times, each by another failure, and goes on from its last checkpoint each time.

It samples a step ahead, as the 8B files do, so that every checkpoint has groups under way.
"""

import os
import pickle
import signal
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from rubricem_agent.learn.checkpoint import find_checkpoint, load_checkpoint
from rubricem_agent.learn.curriculum import Curriculum, Encounter
from tests.lanes.verl.runs import LIMIT, SMALL, Run, started
from trainers.verl_backend.checkpoint import FOLDER
from trainers.verl_backend.questions import load_training_questions
from trainers.verl_backend.settings import read_section

WINDOW = 3
AHEAD = 1
BATCH = 2
CHANGES = (
    *SMALL,
    *(f"rubricem.window={WINDOW}", f"trainer.v1.colocate_async.num_warmup_batches={AHEAD}", "trainer.save_freq=1"),
)
SLOW_JUDGE = "rubricem.almanac={knobs: {latency: 3.0}}"
"""So that groups are with the judge when a checkpoint is written."""
OUTAGE = ("rubricem.almanac={knobs: {failure_rate: 1.0}}", "rubricem.outage.patience=0")
ENDS_WITHIN = 150.0
"""Seconds from a failure to the end of the command, on a busy machine."""


class Stopped(NamedTuple):
    """How a start of the run ended."""

    code: int | None
    sentences: list[str]
    seconds: float
    saved: int
    """The latest checkpoint, from which the next start goes on."""


class Chain(NamedTuple):
    """All the starts of the run, in their order."""

    killed: Stopped
    lost_worker: Stopped
    outage: Stopped
    lost_engine: Stopped
    last: Run


@pytest.fixture(scope="module")
def chain(policy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("edges")
    killed = stop(folder, policy, lambda run: os.killpg(run.process.pid, signal.SIGKILL), SLOW_JUDGE, steps=2)
    lost_worker = stop(folder, policy, lambda run: os.kill(run.worker("WorkerDict"), signal.SIGKILL))
    outage = stop(folder, policy, lambda run: None, *OUTAGE, steps=0)
    lost_engine = stop(folder, policy, lambda run: os.kill(run.worker("ReplicaServer"), signal.SIGKILL))
    with started(folder, policy, *CHANGES, f"trainer.total_training_steps={last_step(lost_engine.saved)}") as run:
        assert run.wait(LIMIT) == 0, run.tail()
        return Chain(killed, lost_worker, outage, lost_engine, run)


def stop(folder: Path, policy: Path, strike, *changes: str, steps: int = 1) -> Stopped:
    """Start the run, strike it when it has saved so many steps more, and wait until it has ended."""
    with started(folder, policy, *CHANGES, *changes, "trainer.total_training_steps=90") as run:
        before = run.saved
        assert run.wait(LIMIT, until=lambda run: run.saved >= before + steps) is None, run.tail()
        struck = time.monotonic()
        strike(run)
        code = run.wait(ENDS_WITHIN if steps else LIMIT)
        return Stopped(code, run.sentences, time.monotonic() - struck, run.saved)


def last_step(saved: int) -> int:
    """The next step from which on a whole checkpoint's groups are repeats, those under way included."""
    return next(step for step in range(saved + 1, 90) if {encounter(step), encounter(step + AHEAD)} == {"repeat"})


def encounter(step: int) -> Encounter:
    return "new" if (step - 1) % (2 * WINDOW) < WINDOW else "repeat"


def new_groups(step: int) -> int:
    """How many groups meet a question for the first time, to the end of a step of the curriculum."""
    return BATCH * sum(encounter(one) == "new" for one in range(1, step + 1))


def kept(folder: Path, step: int, part: str):
    return load_checkpoint(find_checkpoint(folder / FOLDER, step=step), step=step).read_json(part)


def launched(run: Run, step: int) -> int:
    """Reflections launched up to the end of a step: those that steps have collected and those in its checkpoint."""
    state = kept(run.folder, step, "deferred")
    lines = [line for line in run.steps if line["step"] <= step]
    collected = sum(len(line["staleness"]) + len(line["failed_reflections"]) for line in lines)
    return collected + sum(len(state[part]) for part in ("pending", "done", "failed"))


def queue(folder: Path, step: int) -> dict[str, dict]:
    """What veRL has noted of each key in its queue, as it was saved."""
    state = pickle.loads((folder / f"global_step_{step}" / "transfer_queue" / "controller_state.pkl").read_bytes())
    rows = state["partitions"]["train"]
    return {key: rows.custom_meta[place] for key, place in rows.keys_mapping.items()}


def under_way(folder: Path, step: int) -> int:
    """Groups that a checkpoint holds as not judged."""
    return sum(tag.get("is_prompt", False) and tag["status"] != "finished" for tag in queue(folder, step).values())


def test_the_saved_queue_and_the_saved_judge_service_agree_on_what_is_judged(chain):
    folder, step = chain.last.folder, chain.killed.saved
    # Questions of both steps, and of the one ahead, are new ones: each has its reflection as soon as it is judged.
    assert encounter(step + AHEAD) == "new"
    assert launched(chain.last, step) == new_groups(step + AHEAD) - under_way(folder, step)


@pytest.mark.parametrize(
    ("failure", "sentence"),
    [
        ("lost_worker", "a process of the run is gone"),
        ("lost_engine", "a process of the run is gone"),
        ("outage", "rollouts were lost; more than 20% stop the run"),
    ],
)
def test_a_failure_ends_the_run_with_one_sentence_that_says_how_to_go_on(chain, failure, sentence):
    ended = getattr(chain, failure)
    assert ended.code == 2
    assert len(ended.sentences) == 1
    assert sentence in ended.sentences[0]
    assert "from its last checkpoint" in ended.sentences[0] or "from the last checkpoint" in ended.sentences[0]


def test_after_each_failure_the_run_goes_on_where_it_was_saved(chain):
    assert chain.killed.saved < chain.lost_worker.saved <= chain.outage.saved < chain.lost_engine.saved
    assert [line["step"] for line in chain.last.steps] == list(range(1, last_step(chain.lost_engine.saved) + 1))


def test_the_curriculum_is_where_an_unbroken_run_would_have_it_a_step_ahead(chain):
    step = last_step(chain.lost_engine.saved)
    keys = list(load_training_questions(read_section({"almanac": {}}))[0])
    unbroken = Curriculum(keys, batch_size=BATCH, window=WINDOW, rng=np.random.default_rng(0))
    for _ in range(step + AHEAD):
        next(unbroken)
    assert kept(chain.last.folder, step, "stream") == {"curriculum": unbroken.state_dict(), "waiting": []}


def test_no_question_was_reflected_on_twice_or_not_at_all(chain):
    step = last_step(chain.lost_engine.saved)
    assert launched(chain.last, step) == new_groups(step)


def test_the_queue_holds_the_groups_ahead_and_the_rows_of_the_last_step_and_nothing_older(chain):
    step = last_step(chain.lost_engine.saved)
    held = queue(chain.last.folder, step)
    groups = {key for key, tag in held.items() if tag.get("is_prompt", False)}
    trained = {key.split("_")[0] for key in held} - groups
    assert len(groups) == BATCH * AHEAD
    assert len(trained) <= BATCH
