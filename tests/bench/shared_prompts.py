"""Measure what shared prompts save in the local trainer's updates.

    python -m tests.bench.shared_prompts [--rounds 5] [--json FILE]

One step of the almanac with the policy `tiny`: 8 questions of 8 attempts, and 8 reflection candidates of each question.
Each update's gradient is computed twice: with the samples of a group beside each other, so that their prompt is read
once, and with the same samples dealt out in turn, so that none follows one with its prompt and all are read whole. The
two gradients are compared. Tokens are those that go through the model in one pass.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from rubricem_agent.learn.samples import Sample, pad_batch, reflection_samples
from trainers.local.crediting import credit_step
from trainers.local.learner import Learner
from trainers.local.packed import pack_samples
from trainers.local.run import make_run, open_services
from trainers.local.sampling import reflect, sample_and_judge
from trainers.local.settings import LocalConfig
from trainers.settings import read_settings

CONFIG = Path(__file__).parents[2] / "configs" / "demo_almanac.yaml"


async def samples_of_a_step(changes: Sequence[str]) -> tuple[Learner, dict[str, list[Sample]]]:
    """The samples of both phases, group beside group, and the learner that would train on them."""
    config = read_settings(CONFIG, LocalConfig, changes=changes)
    async with open_services(config) as (toolbox, judge):
        run = make_run(config, toolbox, judge)
        batch = next(run.curriculum)
        judged = await sample_and_judge(run, batch)
        await reflect(run, judged)
        outcomes = [outcome for _, outcome in run.deferred.collect(step=batch.step + 1)[0]]
        await run.policy.aclose()
    attempts = credit_step(run, judged).samples
    return run.learner, {"reflections": reflection_samples(outcomes, version=0), "attempts": attempts}


def dealt(samples: Sequence[Sample], apart: int) -> list[Sample]:
    """The samples in another order, in which neighbours were `apart` places from each other."""
    return [sample for start in range(apart) for sample in samples[start::apart]]


def gradient(learner: Learner) -> torch.Tensor:
    return torch.cat([one.grad.flatten() for one in learner.policy.parameters() if one.grad is not None])


def measure(learner: Learner, samples: Sequence[Sample], *, apart: int, rounds: int) -> dict[str, float]:
    """Both ways in turn; the seconds are medians, after a round that is not counted."""
    ways = {"shared": pad_batch(samples, pad_id=0), "whole": pad_batch(dealt(samples, apart), pad_id=0)}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    gradients: dict[str, torch.Tensor] = {}
    for _ in range(rounds + 1):
        for way, batch in ways.items():
            started = time.perf_counter()
            learner.accumulate_gradient(batch)
            seconds[way].append(time.perf_counter() - started)
            gradients[way] = gradient(learner)
    packs = {way: pack_samples(batch, max_tokens=learner.micro_batch_tokens) for way, batch in ways.items()}
    tokens = {way: sum(len(pack.token_ids) for pack in packs[way]) for way in ways}
    difference = (gradients["shared"] - gradients["whole"]).norm() / gradients["whole"].norm()
    return {
        "samples": len(samples),
        "policy tokens": ways["whole"].num_policy_tokens,
        **{f"tokens {way}": count for way, count in tokens.items()},
        **{f"seconds {way}": round(statistics.median(times[1:]), 3) for way, times in seconds.items()},
        "relative difference of the gradients": float(difference),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    chosen = parser.parse_args()
    with TemporaryDirectory() as folder:
        own = ["meta_policy=true", "reflection.num_candidates=8", f"out={folder}"]
        learner, samples = asyncio.run(samples_of_a_step([*own, *chosen.changes]))
    found = {}
    for phase, rows in samples.items():
        found[phase] = measure(learner, rows, apart=8, rounds=chosen.rounds)
        print(f"{phase}: {json.dumps(found[phase])}")  # noqa: T201
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
