"""vLLM's engine is a process of its own behind its server: its death ends the run with a sentence, and in seconds."""

import os
import signal
import time
from pathlib import Path

from rubricem_agent.policy.base import model_folder
from tests.lanes.verl.runs import started
from tests.lanes.verl_vllm.test_run import CHANGES, ENVIRONMENT, LIMIT

ENDS_WITHIN = 90.0
"""Seconds, on a busy machine; the limits of the steps are longer than this."""


def test_a_dead_engine_behind_a_living_server_ends_the_run(tmp_path):
    changes = (*CHANGES, "trainer.total_training_steps=50")
    with started(tmp_path, model_folder(Path("tiny")), *changes, environment=ENVIRONMENT) as run:
        assert run.wait(LIMIT, until=lambda run: len(run.steps) >= 1) is None, run.tail()
        (engine,) = run.children(run.worker("vLLMHttpServer"), "EngineCore")
        os.kill(engine, signal.SIGKILL)
        struck = time.monotonic()
        assert run.wait(ENDS_WITHIN) == 2, run.tail()
        assert len(run.sentences) == 1
        # Missed, or met by the rollouts that it has broken off.
        assert "a process of the run is gone" in run.sentences[0] or "rollouts were lost" in run.sentences[0]
        assert time.monotonic() - struck < ENDS_WITHIN
