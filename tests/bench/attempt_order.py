"""More tokens a pass where attempts at a question follow each other: python -m tests.bench.attempt_order [--steps 3].

Attempts at one question that are decoded in step cannot draft from each other; one that starts after another can. Each
line decodes the same number of attempts of the policy `tiny` in the almanac: all rows at once, or fewer, so that a
question's later attempts wait for its earlier ones. Processor seconds, so that other work does not count.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

from rubricem_agent.policy.base import TINY
from rubricem_agent.policy.local import Batcher, Draw, Job, LocalPolicy, load_tokenizer
from rubricem_agent.rollout.run import RolloutContext, run_groups
from rubricem_records.rollouts.sampling import Sampling
from trainers.local.run import Run, make_run
from trainers.local.settings import LocalConfig
from trainers.settings import read_settings

QUESTIONS, GROUP_SIZE = 8, 8


class Way(NamedTuple):
    rows: int
    drafts: int
    is_staggered: bool = False
    """One attempt at each question after the other, in place of question after question."""


WAYS = (Way(64, 0), Way(64, 3), Way(64, 4), Way(32, 3, True), Way(16, 3, True), Way(8, 3, True), Way(8, 5, True))


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Count the passes, the rows that draw in them, and what they draw."""
    plain, counts = Batcher._pass, Counter[str]()

    def counted(
        batcher: Batcher, jobs: Sequence[Job], drafts: Sequence[Sequence[int]] = ()
    ) -> list[tuple[Job, list[Draw]]]:
        drawn = plain(batcher, jobs, drafts)
        counts.update(passes=1, rows=len(drawn), tokens=sum(len(tokens) for _, tokens in drawn))
        return drawn

    Batcher._pass = counted  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        Batcher._pass = plain  # type: ignore[method-assign]


async def decode(run: Run, way: Way, steps: int) -> None:
    """The attempts of some steps, one way."""
    policy = LocalPolicy(
        run.learner.policy, load_tokenizer(Path(TINY)), rows=way.rows, max_length=2_400, draft_tokens=way.drafts
    )
    context = RolloutContext(policy, run.toolbox, run.config.limits, Sampling(temperature=1.0, max_turn_tokens=512))

    async def opened(query, attempt):  # type: ignore[no-untyped-def]
        return run.prompt.opening(query, references=""), run.prompt.hash

    queries = list(run.train.values())
    began = time.process_time()
    with counting() as counts:
        for step in range(steps):
            asked = queries[QUESTIONS * step : QUESTIONS * (step + 1)]
            order, size = (asked * GROUP_SIZE, 1) if way.is_staggered else (asked, GROUP_SIZE)
            await run_groups(order, opened, context, group_size=size, concurrency=way.rows, seed=step)
    seconds = time.process_time() - began
    await policy.aclose()
    sys.stdout.write(
        f"{way.rows} rows, {way.drafts} drafts{', staggered' if way.is_staggered else ''}: {counts['passes']} passes, "
        f"{counts['tokens'] / counts['rows']:.2f} tokens a row and pass, "
        f"{1e6 * seconds / counts['tokens']:.0f} us a token\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.attempt_order")
    parser.add_argument("--steps", type=int, default=3)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as out:
        changes = [f"policy={TINY}", f"out={out}", "record=false"]
        run = make_run(read_settings(Path("configs/demo_almanac.yaml"), LocalConfig, changes=changes))
        for way in WAYS:
            asyncio.run(decode(run, way, chosen.steps))
