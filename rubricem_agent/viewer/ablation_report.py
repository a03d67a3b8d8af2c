"""The ablation for people: its table and its figure."""

from pathlib import Path

from pydantic import ValidationError

from rubricem_agent.learn.recipes import BASELINE
from rubricem_agent.viewer.ablation import ABLATION_FILE, Ablation, RecipeResult, Spread
from rubricem_agent.viewer.line_chart import BandPoint, Curve, Point, draw_svg
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import first_problem

HEAD = (
    "recipe",
    "answers",
    "all stages",
    "valid",
    "against answer-only",
    "steps to answer-only's end",
    "seconds a run",
)
FIGURE_TITLE = "Held-out answers by truth, mean over seeds with 95 % interval"


def load_ablation(folder: Path) -> Ablation:
    """What `rubricem ablate` left in its folder.

    Raises:
        FileFormatError: it is not there, or not whole.
    """
    path = folder / ABLATION_FILE
    try:
        return Ablation.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {path}: {cause}. Give the folder of an ablation that has ended.") from cause
    except ValidationError as cause:
        raise FileFormatError(f"{path} is no ablation {first_problem(cause)} Run rubricem ablate again.") from cause


def result_cells(result: RecipeResult) -> tuple[str, ...]:
    """A row of the table, in the order of HEAD."""
    own = result.against_baseline
    return (
        result.title,
        format_spread(result.answer),
        format_spread(result.all_stages),
        f"{result.valid.mean:.0%}",
        "-" if result.name == BASELINE.name else f"{own.mean:+.3f} [{own.low:+.3f}, {own.high:+.3f}]",
        "not reached" if result.steps_to_baseline is None else str(result.steps_to_baseline),
        f"{result.seconds:.0f}",
    )


def format_spread(value: Spread) -> str:
    return f"{value.mean:.3f} [{value.low:.3f}, {value.high:.3f}]"


def curves_of(ablation: Ablation) -> list[Curve]:
    return [
        Curve(
            result.title,
            [Point(at.step, at.answer.mean) for at in result.curve],
            [BandPoint(at.step, at.answer.low, at.answer.high) for at in result.curve],
        )
        for result in ablation.results
    ]


def render_figure(ablation: Ablation) -> str:
    """The figure as an SVG file of its own."""
    return draw_svg(FIGURE_TITLE, curves_of(ablation))
