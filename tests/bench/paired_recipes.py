"""Compares the recipes of `python -m research.ablate` on many held-out questions, paired by seed and question.

    python -m tests.bench.paired_recipes OUT --rows rows.jsonl [--worlds 10]

OUT is the folder of the comparison. Each finished run answers the test questions of ten worlds greedily and at
temperature 1, without the bank. Its true qualities are a line of the rows file, so that the command resumes. Then the
differences within the pairs are printed, with 95 % bootstrap intervals over seeds and questions.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from research.reading_test import answer_worlds
from rubricem_env.world.judge import true_quality
from rubricem_records.files.line_file import LineFile
from rubricem_records.runs.recipes import RECIPES
from trainers.settings import run_command

PAIRS = (
    ("ss_grpo", "answer_only"),
    ("whole", "answer_only_meta"),
    ("answer_only_meta", "answer_only"),
    ("whole", "ss_grpo"),
)
DRAWS = 10_000
Answers = Mapping[tuple[str, int, float], Sequence[float]]
"""The quality of every answer, by recipe, seed and temperature."""


def answer_all(out: Path, rows: LineFile, worlds: int) -> Answers:
    """Of each run that has ended, from the file where it is there."""
    known = {(row["run"], row["seed"], row["temperature"]): row["answers"] for row in map(json.loads, rows.read())}
    for model in sorted(out.glob("*/seed-*/model")):
        run, seed = model.parts[-3], int(model.parts[-2].removeprefix("seed-"))
        for warmth in (0.0, 1.0):
            if (run, seed, warmth) in known:
                continue
            made = answer_worlds(model, range(worlds), "test", temperature=warmth)
            answers = [round(true_quality(question, rollout.parsed)[-1], 4) for question, rollout in made]
            valid = np.mean([not rollout.parsed.rejections for _, rollout in made])
            row = {"run": run, "seed": seed, "temperature": warmth, "valid": round(float(valid), 4), "answers": answers}
            rows.append([json.dumps(row).encode()])
            known[run, seed, warmth] = answers
            sys.stderr.write(f"{run} seed {seed} temperature {warmth:g}: {np.mean(answers):.3f}\n")
    return known


def interval(gaps: np.ndarray) -> tuple[float, float]:
    """Of the mean of the gaps (seeds, questions), where both are drawn anew."""
    rng = np.random.default_rng(0)
    seeds, questions = gaps.shape
    means = [
        gaps[np.ix_(rng.integers(seeds, size=seeds), rng.integers(questions, size=questions))].mean()
        for _ in range(DRAWS)
    ]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def report(answers: Answers) -> str:
    """A line for each pair and temperature."""
    titles = {recipe.name: recipe.title for recipe in RECIPES}
    lines = []
    for first, second in PAIRS:
        for warmth in (0.0, 1.0):
            own, other = (
                {seed for run, seed, at in answers if (run, at) == (name, warmth)} for name in (first, second)
            )
            seeds = sorted(own & other)
            if not seeds:
                continue
            gaps = np.array(
                [np.subtract(answers[first, seed, warmth], answers[second, seed, warmth]) for seed in seeds]
            )
            low, high = interval(gaps)
            each = ", ".join(f"{gap:+.3f}" for gap in gaps.mean(axis=1))
            lines.append(
                f"{titles[first]} less {titles[second]}, temperature {warmth:g}: {gaps.mean():+.3f} "
                f"({low:+.3f} to {high:+.3f}); seeds {', '.join(map(str, seeds))}: {each}; {gaps.shape[1]} questions"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer and compare; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.paired_recipes")
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--worlds", type=int, default=10)
    chosen = parser.parse_args(arguments)

    def compare() -> None:
        sys.stdout.write(f"{report(answer_all(chosen.out, LineFile(chosen.rows), chosen.worlds))}\n")

    return run_command("paired_recipes", compare)


if __name__ == "__main__":
    sys.exit(main())
