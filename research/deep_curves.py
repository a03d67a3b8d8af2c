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
from research.ablation import curve_over_seeds, evaluation_at, figure_curve, spread, spread_cell
from research.line_chart import draw_svg
from rubricem_env.domain.base import Frozen
from rubricem_records.files.atomic_files import write_atomic
from rubricem_records.runs.recipes import Recipe
from rubricem_viewer.ablation import CurvePoint
from trainers.process import read_trainer_command, trainer_environment
from trainers.settings import run_command

UNFOLDED = ("context={}", "limits.max_tokens=2400", "reflection.total_tokens=2560")
"""The shipped policy's context has 2,560 tokens, the prompt some 80. The last of these makes the cache as large."""
ARMS = (
    Recipe("folded", "folded, 100 calls", "stages", meta_policy=False),
    Recipe("unfolded", "unfolded, 100 calls", "stages", meta_policy=False, more=UNFOLDED),
    Recipe("ten_calls", "folded, 10 calls", "stages", meta_policy=False, more=("limits.max_calls=10",)),
)
TITLE = "Held-out chains answered, by truth, mean over seeds with 95 % interval"


class ArmResult(Frozen):
    """What the finished runs of an arm have come to."""

    arm: str
    title: str
    seeds: tuple[int, ...]
    answers: tuple[float, ...]
    """The share of held-out chains that each seed answers in the end."""
    valid: tuple[float, ...]
    curve: tuple[CurvePoint, ...]


def summarise_arms(runs: Sequence[AblationRun], steps: int) -> list[ArmResult]:
    """The arms of which a run has ended."""
    results = []
    for arm in ARMS:
        own = [run for run in runs if run.recipe.name == arm.name and run.is_finished]
        if not own:
            continue
        logs = [run.log for run in own]
        last = [evaluation_at(log, steps) for log in logs]
        results.append(
            ArmResult(
                arm=arm.name,
                title=arm.title,
                seeds=tuple(run.seed for run in own),
                answers=tuple(evaluation.held_out["answer"] for evaluation in last),
                valid=tuple(evaluation.valid for evaluation in last),
                curve=curve_over_seeds(logs, steps=steps),
            )
        )
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is not finished, then write what has ended. Exit code 1 where a run failed."""
    parser = argparse.ArgumentParser(prog="python -m research.deep_curves", description="Train with and without folds.")
    parser.add_argument("config", type=Path, nargs="?", default=Path("configs/local_deep.yaml"))
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args(arguments)
    failures: dict[str, str] = {}

    def compare() -> None:
        base = read_trainer_command(chosen.config, chosen.changes)
        runs = list_runs(base, seeds=chosen.seeds, steps=chosen.steps, recipes=ARMS)
        environ = trainer_environment(threads=1)
        failures.update(run_all(runs, jobs=chosen.jobs, environ=environ, report=lambda: None))
        _write(base.out, summarise_arms(runs, chosen.steps or base.steps))
        for name, failure in failures.items():
            sys.stderr.write(f"{name}: {failure}\n")

    return run_command("deep_curves", compare) or (1 if failures else 0)


def _write(out: Path, results: Sequence[ArmResult]) -> None:
    rows = [result.model_dump(mode="json") for result in results]
    write_atomic(out / "curves.json", json.dumps(rows, indent=1) + "\n")
    if results:
        curves = [figure_curve(result.title, result.curve) for result in results]
        write_atomic(out / "curves.svg", draw_svg(TITLE, curves))
    for result in results:
        answers = spread_cell(spread(result.answers))
        sys.stdout.write(f"{result.title}: answers {answers}, seeds {', '.join(map(str, result.seeds))}\n")


if __name__ == "__main__":
    sys.exit(main())
