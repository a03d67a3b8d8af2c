"""What the server says of runs."""

from typing import Any, Literal

from rubricem_env.domain.base import Frozen, Text
from rubricem_records.runs.log_lines import ScoredBy
from rubricem_viewer.api.scores import StageScores

RunKind = Literal["training", "evaluation", "ablation"]

Standing = Literal["running", "finished", "stopped", "stale", "unreadable"]


class RunCard(Frozen):
    """A run in the list."""

    id: Text
    name: Text
    """Its path under the root."""
    kind: RunKind
    state: Standing
    """running: a line within the last two minutes; stale: no line for longer, and not at its end; stopped: lost, a
    warning or a failure ended it."""
    changed: float
    """Unix time of the last change."""
    recipe: Text = ""
    """As the ablation calls it, such as `SS-GRPO + meta-policy`; empty where it is none of the four."""
    title: Text = ""
    """Recipe, or benchmark and agent."""
    step: int = 0
    """The last step; answered examples of an evaluation."""
    steps: int | None = None
    """The number of steps of the whole plan; null where it is unknown."""
    scores: StageScores
    """Held-out quality at the last evaluation; an evaluation has the number of its answers under the last stage."""
    scored_by: ScoredBy = "truth"
    scored_at: int | None = None
    """The step of that evaluation."""
    lessons: int = 0
    seconds: float = 0.0
    dollars: float | None = None
    warnings: int = 0
    recorded: int = 0
    """Trajectories that can be looked at."""
    has_bank: bool = False
    problem: Text = ""
    """Why it cannot be read, where its state is `unreadable`, or how its trainer failed."""


class RunList(Frozen):
    """What the server shows."""

    root: Text = ""
    """The folder that is shown."""
    only_run: Text | None = None
    """The id of the run, where the folder is one; the page opens it at once."""
    runs: tuple[RunCard, ...]
    """Newest change first."""


class RunDetail(Frozen):
    card: RunCard
    settings: dict[str, Any]
    """As written in its folder."""
    warnings: tuple[dict[str, int | Text], ...]
    """Each has `step` and `message`."""
    notes: tuple[Text, ...]
    """What is missing and why, such as trajectories that were not recorded."""
