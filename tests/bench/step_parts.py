"""What sampling ahead saves in a step of the local trainer, and what of a step is neither decoding nor updates.

    python -m tests.bench.step_parts [--steps 5] [--ahead 0 1] [KEY=VALUE ...]

For each number of steps ahead: seconds of a step on the clock and of the processors. With steps ahead, decoding and
updates have threads of their own, so the time of the event loop's thread is that of all else: episodes, tools, judge,
bank, credit, record.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

import numpy as np

from trainers.local.run import make_run
from trainers.local.sampling import JudgedStep
from trainers.local.settings import LocalConfig
from trainers.local.ssgrpo import train_step
from trainers.settings import read_settings

CONFIG = Path(__file__).parents[2] / "configs" / "demo_almanac.yaml"


async def measure(changes: list[str], steps: int) -> None:
    config = read_settings(CONFIG, LocalConfig, changes=changes)
    run = make_run(config)
    config.out.mkdir(parents=True, exist_ok=True)
    if run.recorder is not None:
        run.recorder.begin(0, embedder=run.bank.embedder_name)
    waiting: deque[JudgedStep] = deque()
    rows = []
    for step in range(1, steps + 1):
        before = np.array([time.perf_counter(), time.process_time(), time.thread_time(), 0])
        metrics = await train_step(run, step, waiting)
        after = np.array([time.perf_counter(), time.process_time(), time.thread_time(), 0])
        rows.append(after - before + [0, 0, 0, metrics["rollout_stats"]["policy_tokens"]])
        say(f"ahead {config.ahead}, step {step}", rows[-1], has_threads=config.ahead > 0)
    await run.policy.aclose()
    # The first step has nothing sampled before it, and the last nothing after.
    say(f"ahead {config.ahead}, mean without the ends", np.mean(rows[1:-1], axis=0), has_threads=config.ahead > 0)


def say(what: str, row: np.ndarray, *, has_threads: bool) -> None:
    clock, process, loop, tokens = row
    rest = f", {loop:.2f} s neither decoding nor updates" if has_threads else ""
    sys.stdout.write(f"{what}: {clock:.1f} s, {process:.1f} s of the processors{rest}, {tokens:.0f} tokens\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="The time of a step, with and without steps sampled ahead.")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--ahead", type=int, nargs="+", default=[0, 1])
    parser.add_argument("changes", nargs="*")
    told = parser.parse_args()
    for ahead in told.ahead:
        with tempfile.TemporaryDirectory() as folder:
            fixed = [f"out={folder}/run", f"ahead={ahead}", f"steps={told.steps}", "checkpoint_every=1000"]
            asyncio.run(measure([*fixed, *told.changes], told.steps))


if __name__ == "__main__":
    main()
