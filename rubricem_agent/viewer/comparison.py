"""Two runs or more side by side: the settings in which they differ, and each figure with a curve of every run."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rubricem_agent.viewer.api_models.runs import ComparedSetting, Comparison, Curve, Figure, RunCard
from rubricem_agent.viewer.curve_figures import make_figures
from rubricem_agent.viewer.training_run import Run

MAX_VALUE = 200
_PLACES = ("out",)
"""Settings that differ between any two runs and say nothing."""


class ComparedRun(NamedTuple):
    """A run with its card."""

    card: RunCard
    run: Run


def compare_runs(runs: Sequence[ComparedRun]) -> Comparison:
    """The runs in the order given. A figure of one line has one curve for each run; others are split, a line each."""
    split = [[single for figure in make_figures(one.run) for single in _split(figure)] for one in runs]
    keys = dict.fromkeys(figure.key for figures in split for figure in figures)
    return Comparison(
        runs=tuple(one.card for one in runs),
        differs=tuple(_differences([one.run.settings for one in runs])),
        figures=tuple(_merge(key, runs, split) for key in keys),
    )


def _split(figure: Figure) -> list[Figure]:
    """A figure with several lines as several with one; expected bands are left out."""
    own = [curve for curve in figure.curves if not curve.low]
    if len(own) <= 1:
        return [figure.model_copy(update={"curves": tuple(own)})]
    return [
        figure.model_copy(
            update={"key": f"{figure.key}:{curve.name}", "title": f"{figure.title}: {curve.name}", "curves": (curve,)}
        )
        for curve in own
    ]


def _merge(key: str, runs: Sequence[ComparedRun], split: Sequence[Sequence[Figure]]) -> Figure:
    found = [next((figure for figure in figures if figure.key == key), None) for figures in split]
    first = next(figure for figure in found if figure is not None)
    curves = tuple(
        _renamed(curve, one.card)
        for one, figure in zip(runs, found, strict=True)
        if figure is not None
        for curve in figure.curves
    )
    return first.model_copy(update={"curves": curves})


def _renamed(curve: Curve, card: RunCard) -> Curve:
    return curve.model_copy(update={"name": card.name, "run": card.id, "dashed": False})


def _differences(settings: Sequence[Mapping[str, Any]]) -> list[ComparedSetting]:
    flat = [_flatten(one) for one in settings]
    keys = sorted(set().union(*flat))
    rows = [(key, tuple(one.get(key, "") for one in flat)) for key in keys if key not in _PLACES]
    return [ComparedSetting(key=key, values=values) for key, values in rows if len(set(values)) > 1]


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings under dotted names, each value as JSON writes it."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = json.dumps(value, ensure_ascii=False)[:MAX_VALUE]
    return flat
