"""The result of an ablation as a file: each recipe over its seeds, compared with answer-only GRPO."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.inputs import read_text, refuse_other_than_file, validating

ABLATION_FILE = "ablation.json"


class Spread(Frozen):
    """A mean over seeds with its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


class CurvePoint(Frozen):
    step: int
    answer: Spread


class RecipeResult(Frozen):
    """A recipe over its seeds, by truth on held-out questions, at the last step."""

    name: str
    title: str
    seeds: tuple[int, ...]
    answer: Spread
    all_stages: Spread
    valid: Spread
    against_baseline: Spread
    """Answers less answer-only GRPO's, seed by seed; 0 for answer-only GRPO itself."""
    steps_to_baseline: int | None
    """The first evaluated step at which the mean over seeds reaches what answer-only GRPO reaches at the end."""
    seconds: float
    """The mean time of the steps of one run, while others ran beside it."""
    curve: tuple[CurvePoint, ...]


class Ablation(Frozen):
    """All recipes under one budget."""

    steps: int
    command: str
    results: Annotated[tuple[RecipeResult, ...], Field(min_length=1)]


def load_ablation(folder: Path) -> Ablation:
    """What `python -m research.ablate` left in its folder.

    Raises:
        FileFormatError: it is not there, or not whole.
    """
    path = folder / ABLATION_FILE
    refuse_other_than_file(path, "ablation")
    with validating(f"{path} is no ablation", "Run python -m research.ablate again."):
        return Ablation.model_validate_json(read_text(path, "the result of an ablation that has ended"))
