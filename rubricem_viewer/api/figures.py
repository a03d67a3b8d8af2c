"""What the server says of curves and comparisons."""

from pydantic import Field

from rubricem_env.domain.base import Frozen, Text
from rubricem_viewer.api.runs import RunCard


class Curve(Frozen):
    """A line: x and y have one entry each for every point."""

    name: Text
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    """A band, where there is one."""
    high: tuple[float, ...] = ()
    dashed: bool = False
    stage: Text = ""
    """The stage that gives the colour, where it belongs to one."""
    run: Text = ""
    """The run that it belongs to, in a comparison."""


class Figure(Frozen):
    """A chart."""

    key: Text
    """Stable name, such as `held_out.answer`."""
    section: Text
    """Held-out quality, Judge against truth (The judge's scores, where no truth is known), The policy, Reflections and
    cost."""
    note: Text = ""
    """What the charts of the section show; the same in each of them."""
    title: Text
    unit: Text = ""
    x_name: Text = "step"
    including: tuple[float, ...] = ()
    """Values that are on the axis whatever the curves do."""
    curves: tuple[Curve, ...]
    """Empty: not measured in this run."""


class Comparison(Frozen):
    """Figures of several runs side by side, or of one run."""

    runs: tuple[RunCard, ...] = ()
    policies: tuple[Text, ...] = ()
    """The policy of each run's latest attempt; empty where none was recorded."""
    judges: tuple[Text, ...] = ()
    """The judge of each run's latest attempt; empty where none was recorded."""
    note: Text = ""
    """What the runs cannot be compared by."""
    differs: dict[Text, tuple[Text, ...]] = Field(default_factory=dict)
    """The settings in which they differ: a value for each run, in their order; empty where a run has none."""
    figures: tuple[Figure, ...]
    """One curve for each run; curves name their run."""
