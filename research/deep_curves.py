"""Trains a policy in the deeper almanac with folding beside without, over several seeds, and draws the curves.

    python -m research.deep_curves [configs/local_deep.yaml] [KEY=VALUE ...] [--seeds 3] [--steps N] [--jobs 1]

The same command resumes. Without folding an attempt has as many tokens as the policy's context holds; beside both, ten
calls in a folded context. Results are `curves.json`, `curves.svg` and a table, in the folder that the config names.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from research.ablate import AblationRun, list_runs, run_all
from research.ablation import evaluation_at, spread, spread_cell
from research.line_chart import draw_svg
from rubricem_env.domain.errors import UsageError
from rubricem_records.runs.recipes import Recipe
from rubricem_records.runs.run_log import answers_by_step
from rubricem_viewer.api.figures import Curve
from trainers.process import read_trainer_command, trainer_environment

UNFOLDED = ("context={}", "limits.max_tokens=2400", "reflection.total_tokens=2560")
"""The shipped policy's context has 2,560 tokens, the prompt some 80. The last of these makes the cache as large."""
ARMS = (
    Recipe("folded", "folded, 100 calls", "stages", meta_policy=False),
    Recipe("unfolded", "unfolded, 100 calls", "stages", meta_policy=False, more=UNFOLDED),
    Recipe("ten_calls", "folded, 10 calls", "stages", meta_policy=False, more=("limits.max_calls=10",)),
)
TITLE = "Held-out chains answered, by truth, mean over seeds with 95 % interval"


def summarise_arms(runs: Sequence[AblationRun], steps: int) -> list[dict[str, object]]:
    """For each arm its seeds, and by step the mean over seeds of held-out answers and of valid attempts."""
    rows: list[dict[str, object]] = []
    for arm in ARMS:
        own = [run for run in runs if run.recipe.name == arm.name and run.is_finished]
        if not own:
            continue
        logs = [run.log for run in own]
        curve = {step: spread(values) for step, values in answers_by_step(logs).items()}
        last = [evaluation_at(log, steps) for log in logs]
        rows.append(
            {
                "arm": arm.name,
                "title": arm.title,
                "seeds": [run.seed for run in own],
                "answers": [evaluation.held_out["answer"] for evaluation in last],
                "valid": [evaluation.valid for evaluation in last],
                "curve": {step: tuple(point.model_dump().values()) for step, point in curve.items()},
            }
        )
    return rows


def draw(runs: Sequence[AblationRun]) -> str:
    """The curves as an SVG file."""
    curves = []
    for arm in ARMS:
        logs = [run.log for run in runs if run.recipe.name == arm.name and run.is_finished]
        points = {step: spread(values) for step, values in answers_by_step(logs).items()} if logs else {}
        if points:
            curves.append(
                Curve(
                    name=arm.title,
                    x=tuple(map(float, points)),
                    y=tuple(point.mean for point in points.values()),
                    low=tuple(point.low for point in points.values()),
                    high=tuple(point.high for point in points.values()),
                )
            )
    return draw_svg(TITLE, curves)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is not finished, then write what has ended. Exit code 1 where a run failed."""
    parser = argparse.ArgumentParser(prog="python -m research.deep_curves", description="Train with and without folds.")
    parser.add_argument("config", type=Path, nargs="?", default=Path("configs/local_deep.yaml"))
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args(arguments)
    try:
        base = read_trainer_command(chosen.config, chosen.changes)
        runs = list_runs(base, seeds=chosen.seeds, steps=chosen.steps, recipes=ARMS)
        failures = run_all(runs, jobs=chosen.jobs, environ=trainer_environment(threads=1), report=lambda: None)
    except UsageError as refused:
        sys.stderr.write(f"{refused}\n")
        return 2
    rows = summarise_arms(runs, chosen.steps or base.steps)
    (base.out / "curves.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if rows:
        (base.out / "curves.svg").write_text(draw(runs), encoding="utf-8")
    for row in rows:
        answers = spread_cell(spread(list(row["answers"])))  # type: ignore[call-overload]
        sys.stdout.write(f"{row['title']}: answers {answers}, seeds {row['seeds']}\n")
    for name, failure in failures.items():
        sys.stderr.write(f"{name}: {failure}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
