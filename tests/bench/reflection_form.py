"""What keeps reflections readable without costing answers: the variants of the form, three seeds each, in the almanac.

    python -m tests.bench.reflection_form --out runs/reflection_form [--seeds 3] [--jobs 1]

Prints, for each variant, the readable share over the first and the last three reflecting steps, and held-out answers.
Hours on a CPU: never part of the tests. The best variant becomes the default of `reflection` in the trainers.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

from rubricem_agent.learn.metrics import read_log

BASE = {"num_candidates": 4, "total_tokens": 2400, "new_tokens": 128, "system": "Reflect."}
VARIANTS = {
    "paper": {},
    "zero": {"form_counts": True},
    "share": {"form_counts": "share"},
    "repair": {"repairs_form": True},
    "repair and share": {"repairs_form": True, "form_counts": "share"},
    "KL 0.01": {"kl_coefficient": 0.01},
}


def run(out: Path, variant: str, seed: int) -> Path:
    folder = out / variant.replace(" ", "_") / f"seed-{seed}"
    settings = (
        "{"
        + ", ".join(
            f"{key}: {str(value).lower() if value is True else value}"
            for key, value in (BASE | VARIANTS[variant]).items()
        )
        + "}"
    )
    command = [
        sys.executable,
        "-P",
        "-m",
        "rubricem_trainers.local.ssgrpo",
        "--config",
        "configs/ablation_almanac.yaml",
    ]
    changes = [f"out={folder}", f"seed={seed}", "credit=stages", "meta_policy=true", f"reflection={settings}"]
    subprocess.run([*command, *changes], check=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = {
            (name, seed): pool.submit(run, options.out, name, seed)
            for name in VARIANTS
            for seed in range(options.seeds)
        }
        for name in VARIANTS:
            logs = [read_log(runs[name, seed].result()) for seed in range(options.seeds)]
            readable = [[line.readable for line in log.steps if line.readable is not None] for log in logs]
            first, last = (fmean(fmean(part(own)) for own in readable) for part in (lambda x: x[:3], lambda x: x[-3:]))
            answers = [log.evaluations[-1].held_out["answer"] for log in logs]
            sys.stdout.write(
                f"{name}: readable {first:.2f} to {last:.2f}; answers {fmean(answers):.3f} ({min(answers):.3f} to {max(answers):.3f})\n"
            )


if __name__ == "__main__":
    main()
