"""Draws how runs of one recipe learn, and writes the curve that the recipe's next runs are drawn beside.

python -m docs.make.learning RUN_DIR ... --figure docs/images/demo.svg --curve rubricem_records/expected/demo_whole.json
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from research.line_chart import draw_svg
from rubricem_records.runs.expected_curves import Expected, make_expected
from rubricem_records.runs.levels import find_levels
from rubricem_records.runs.run_log import read_log
from rubricem_records.runs.run_settings import SETTINGS_FILE
from rubricem_viewer.api.figures import Curve

TITLE = "Answers to held-out questions, by truth, over the steps"


def draw(expected: Expected, levels: dict[str, float]) -> str:
    """Mean and range over the seeds, between the floor and the ceilings."""
    points = expected.held_out_answer
    ends = (float(points[0].step), float(points[-1].step))
    learning = Curve(
        name=f"mean and range over {expected.seeds} seeds",
        x=tuple(float(point.step) for point in points),
        y=tuple(point.mean for point in points),
        low=tuple(point.lowest for point in points),
        high=tuple(point.highest for point in points),
    )
    flat = [
        Curve(name=f"{name} ({at:.2f})", x=ends, y=(at, at), low=(at, at), high=(at, at), dashed=True)
        for name, at in levels.items()
    ]
    return draw_svg(TITLE, [learning, *flat])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the two files; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m docs.make.learning")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--recipe", default="whole")
    parser.add_argument("--made-by", required=True, help="the command, and the commit it was run at")
    parser.add_argument("--figure", type=Path, required=True)
    parser.add_argument("--curve", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    settings = json.loads((chosen.runs[0] / SETTINGS_FILE).read_text(encoding="utf-8"))
    logs = [read_log(run) for run in chosen.runs]
    expected = make_expected(chosen.recipe, logs, settings=settings, made_by=chosen.made_by)
    chosen.curve.write_text(f"{expected.model_dump_json(indent=1)}\n", encoding="utf-8")
    chosen.figure.write_text(draw(expected, find_levels(settings)), encoding="utf-8")
    for point in expected.held_out_answer:
        sys.stdout.write(f"step {point.step}: {point.mean:.3f} ({point.lowest:.3f} to {point.highest:.3f})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
