r"""What keeps reflections readable without costing answers: the variants of the form, three seeds each, in the almanac.

    python -m tests.bench.reflection_form --out runs/reflection_form [--variants paper share] [--seeds 3] [--steps 18] \
        [-- KEY=VALUE ...]

Prints, for each variant, the readable share over the first and the last three reflecting steps, and held-out answers.
The same command resumes. Hours on a CPU: never part of the tests. The default of the trainers is the best of them.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import fmean

from rubricem_records.runs.run_log import read_log

BASE = {"num_candidates": 4, "total_tokens": 2400, "new_tokens": 128, "system": "Reflect."}
VARIANTS = {
    "paper": {},
    "zero": {"form_counts": True},
    "share": {"form_counts": "share"},
    "repair": {"repairs_form": True},
    "repair and share": {"repairs_form": True, "form_counts": "share"},
    "KL 0.01": {"kl_coefficient": 0.01},
}


def run(out: Path, variant: str, seed: int, changes: list[str]) -> Path:
    folder = out / variant.replace(" ", "_") / f"seed-{seed}"
    settings = ", ".join(
        f"{key}: {str(value).lower() if value is True else value}" for key, value in (BASE | VARIANTS[variant]).items()
    )
    command = [
        sys.executable,
        "-P",
        "-m",
        "rubricem_trainers.local.command",
        "--config",
        "configs/ablation_almanac.yaml",
    ]
    shared = ["credit=stages", "meta_policy=true", "evaluate_every=9", "compare_gradients_every=0"]
    own = [f"out={folder}", f"seed={seed}", f"reflection={{{settings}}}"]
    subprocess.run([*command, *shared, *own, *changes], check=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument(
        "changes", nargs="*", help="KEY=VALUE of the runs, such as reflect_phase=all questions_per_step=4"
    )
    options = parser.parse_args()
    # Seed by seed, so that a run that is stopped has whole comparisons.
    runs = {
        (name, seed): run(options.out, name, seed, [f"steps={options.steps}", *options.changes])
        for seed in range(options.seeds)
        for name in options.variants
    }
    for name in options.variants:
        logs = [read_log(runs[name, seed]) for seed in range(options.seeds)]
        readable = [[line.readable for line in log.steps if line.readable is not None] for log in logs]
        first, last = (fmean(fmean(part(own)) for own in readable) for part in (lambda x: x[:3], lambda x: x[-3:]))
        utility = [[line.utility for line in log.steps if line.utility is not None] for log in logs]
        begun, ended = (fmean(fmean(part(own)) for own in utility) for part in (lambda x: x[:3], lambda x: x[-3:]))
        answers = [log.evaluations[-1].held_out["answer"] for log in logs]
        sys.stdout.write(
            f"{name}: readable {first:.2f} to {last:.2f}; utility {begun:.2f} to {ended:.2f}; "
            f"answers {fmean(answers):.3f} ({', '.join(f'{one:.3f}' for one in answers)})\n"
        )


if __name__ == "__main__":
    main()
