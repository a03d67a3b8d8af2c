"""A run whose judge is away: the step that ends meanwhile is saved, and a kill in the pause loses nothing.

The judge is a server that refuses the questions of the third step until it is told that it is back. The third step is
sampled while the second is trained on, so the second ends in the pause.
"""

import asyncio
import os
import signal
from itertools import cycle, islice

import numpy as np
import pytest

from rubricem_agent.data.question_files import read_training_set
from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.wiring.training_questions import prepare
from rubricem_env.judge.model.templates import PROPOSE
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.testing import ModelReply, ModelRequest, ModelServer, serve_loopback
from rubricem_env.world.almanac import shipped_questions_path
from tests.lanes.verl.edges.test_failures import kept, queue, under_way
from tests.lanes.verl.runs import LIMIT, Run, started
from tests.replies import read_blocks, read_fenced

WINDOW, BATCH, PAUSED = 3, 2, 3
"""The step whose questions the judge refuses is `PAUSED`."""
LAST = PAUSED + 1


class AwayJudge:
    """Scores in turn; refuses some questions, and answers for others some seconds after its first refusal."""

    def __init__(self, refused: list[str], late: list[str]) -> None:
        self.refused, self.late = refused, late
        self.refusals, self.is_back = 0, False
        self._scores = cycle((0, 1, 2, 2, 1))

    async def __call__(self, request: ModelRequest) -> ModelReply | str:
        if any(question in request.prompt for question in self.refused) and not self.is_back:
            self.refusals += 1
            return ModelReply("busy", status=503)
        if any(question in request.prompt for question in self.late) and not self.is_back:
            while not self.refusals:
                await asyncio.sleep(0.1)
            await asyncio.sleep(5.0)
        purpose = "score" if "CRITERIA" in read_blocks(request.prompt) else PROPOSE
        return read_fenced(lambda *_: next(self._scores))(ChatRequest(request.prompt, purpose=purpose))


def stream(questions):
    return Curriculum(list(questions), batch_size=BATCH, window=WINDOW, rng=np.random.default_rng(0))


@pytest.fixture(scope="module")
def resumed(policy, tmp_path_factory) -> tuple[Run, AwayJudge]:
    """The second start of the run, and the judge."""
    folder = tmp_path_factory.mktemp("pause")
    prepare(str(shipped_questions_path()), folder / "questions.jsonl")
    questions = {query.key: query.question for query in read_training_set(folder / "questions.jsonl")}
    batches = islice(stream(questions), LAST)
    steps = {batch.step: [questions[key] for key in batch.keys] for batch in batches}
    judge = AwayJudge(steps[PAUSED], steps[PAUSED - 1])
    with serve_loopback(ModelServer(judge)) as url:
        changes = (
            *("--no-probe", f"data.train_batch_size={BATCH}", f"actor_rollout_ref.actor.ppo_mini_batch_size={BATCH}"),
            *("actor_rollout_ref.rollout.n=2", "trainer.v1.colocate_async.num_warmup_batches=1"),
            *(f"rubricem.window={WINDOW}", "rubricem.meta_policy=false", "rubricem.almanac=null"),
            *(f"rubricem.questions={folder}/questions.jsonl", "rubricem.tools.backend=offline"),
            *(f"rubricem.judge.judge='openai:judge@{url}/v1'", "rubricem.judge.ask.retry.attempts=1"),
            *("rubricem.outage.probe=2", "trainer.save_freq=50"),
        )
        run_folder = folder / "run"
        with started(run_folder, policy, *changes, "trainer.total_training_steps=90") as run:
            assert run.wait(LIMIT, until=lambda run: run.saved > 0) is None, run.tail()
            assert judge.refusals > 0
            os.killpg(run.process.pid, signal.SIGKILL)
        judge.is_back = True
        with started(run_folder, policy, *changes, f"trainer.total_training_steps={LAST}") as run:
            assert run.wait(LIMIT) == 0, run.tail()
            return run, judge


def test_the_step_that_ends_in_the_pause_is_saved_with_the_groups_that_wait_for_the_judge(resumed):
    run, _ = resumed
    saved = PAUSED - 1
    assert run.steps[saved - 1]["paused_seconds"] > 0
    assert under_way(run.folder, saved) == BATCH
    assert kept(run.folder, saved, "noted") == {}  # none of them has its credit


def test_the_killed_run_goes_on_with_every_rollout_and_where_an_unbroken_one_would_be(resumed):
    run, _ = resumed
    assert [(line["step"], line["lost"]) for line in run.steps] == [(step, 0) for step in range(1, LAST + 1)]
    unbroken = stream(dict.fromkeys(query.key for query in read_training_set(run.folder.parent / "questions.jsonl")))
    for _ in range(LAST + 1):
        next(unbroken)
    assert kept(run.folder, LAST, "stream") == {"curriculum": unbroken.state_dict(), "waiting": []}


def test_no_group_is_left_over(resumed):
    run, _ = resumed
    assert sum(tag.get("is_prompt", False) for tag in queue(run.folder, LAST).values()) == BATCH
