"""Training and evaluation killed at ten random moments each and resumed; `make kill-lane`.

    python -m tests.lanes.fuzz.kill [--seed N] [--kills 10]

Every run draws a new seed and prints it. The resumed run must end like one that was never killed.
"""

import argparse
import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import plan_run
from rubricem_agent.wiring.evals import run_evaluation
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelRequest, ModelServer
from tests.rubricem_agent.evals.run.conftest import answers_of, files_of
from tests.rubricem_agent.evals.run.test_kill import RUN
from tests.trainers.local.test_killed import kill_and_resume, write_config

ITEMS = 36
"""Criteria of the synthetic HealthBench, each one call of the judge."""
AT_ONCE = 4


def kill_training(folder: Path, rng: np.random.Generator, kills: int) -> str:
    steps = kills + 2
    kill_and_resume(write_config(folder, steps=steps), folder, rng, steps=steps, kills=kills)
    return f"the same curve of {steps} steps"


def kill_evaluation(folder: Path, rng: np.random.Generator, kills: int) -> str:
    asked: list[ModelRequest] = []
    running: list[subprocess.Popen[bytes]] = []
    deadline = [0]

    def answer(request: ModelRequest) -> str:
        asked.append(request)
        if len(asked) == deadline[0]:
            time.sleep(float(rng.uniform(0.0, 0.02)))
            os.kill(running[-1].pid, signal.SIGKILL)
        return '{"criteria_met": true}'

    with serve_loopback(ModelServer(answer)) as url:
        config = EvalConfig(
            benchmark="healthbench",
            data=str(files_of("healthbench", folder)[0]),
            any_version=True,
            policy=f"file:{answers_of('healthbench', folder)}",
            judges=(f"openai:judge@{url}/v1",),
            judge_concurrency=AT_ONCE,
            out=folder / "run",
            retry=RetryPolicy(attempts=1),
        )
        for number in range(kills):
            logged = _logged(config)
            # What is left is enough for the kills to come.
            deadline[0] = len(asked) + int(rng.integers(1, max(2, (ITEMS - logged) // (kills - number))))
            running.append(subprocess.Popen([sys.executable, "-c", RUN, config.model_dump_json()]))
            assert running[-1].wait() == -signal.SIGKILL
            assert _logged(config) >= logged, "a verdict that was written is gone"
        deadline[0] = 0
        scores = asyncio.run(run_evaluation(plan_run(config))).scores
    assert scores.is_complete
    # Everything is met, the item of -6 points too: 6/12, 9/15, 14/20 and 21/27, each twice.
    assert scores.headline.score == (6 / 12 + 9 / 15 + 14 / 20 + 21 / 27) / 4
    assert _logged(config) == ITEMS
    assert len(asked) <= ITEMS + kills * AT_ONCE
    return f"the same scores with {len(asked)} calls for {ITEMS} items"


def _logged(config: EvalConfig) -> int:
    verdicts = config.folder / "verdicts.jsonl"
    return verdicts.read_bytes().count(b"\n") if verdicts.exists() else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes.fuzz.kill", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--kills", type=int, default=10)
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    for name, kill in (("evaluation", kill_evaluation), ("training", kill_training)):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            outcome = kill(Path(folder), np.random.default_rng(given.seed), given.kills)
        sys.stdout.write(f"{name}: killed {given.kills} times, {outcome}; {time.monotonic() - begun:.0f} s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
