"""What to change first: the seconds and dollars that each of a few changes of a config would save."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from rubricem_env.domain.errors import ConfigError

from .run_shape import Assumptions, RunShape


class Knob(NamedTuple):
    """A change of the config, or of what is assumed."""

    what: str
    changes: tuple[str, ...] = ()
    assumed: tuple[tuple[str, float], ...] = ()


KNOBS = (
    Knob("google_search by serper, not grounded", ("++rubricem.tools.google_search={engine: serper}",)),
    Knob(
        "openalex stands in for snippets",
        (
            "++rubricem.tools.snippet_search=[semantic_scholar, {engine: openalex, rates: {requests_per_minute: 600, "
            "concurrency: 40}}]",
        ),
    ),
    Knob("half of the searches are cached", assumed=(("cached", 0.5),)),
    Knob("two steps ahead", ("++rubricem.ahead=2",)),
    Knob(
        "no pass for the policy's own log-probabilities (another loss)",
        ("++algorithm.rollout_correction.bypass_mode=true",),
    ),
    Knob("reflection prompts of 12k tokens", ("++rubricem.reflection.total_tokens=12288",)),
    Knob(
        "judge on GPUs of your own",
        (
            "++rubricem.judge.judge=openai:Qwen/Qwen3-32B@http://judge:8000/v1",
            "++rubricem.judge.rates={concurrency: 256}",
        ),
    ),
)


class Cost(NamedTuple):
    """What a plan says of a run: seconds of a step and dollars in all; None where a price is unknown."""

    seconds: float
    dollars: float | None


class Saving(NamedTuple):
    """What a change takes off; less than 0 where it adds."""

    what: str
    changes: tuple[str, ...]
    seconds: float
    dollars: float | None


def find_savings(
    read: Callable[[Sequence[str]], RunShape], cost: Callable[[RunShape, Assumptions], Cost], assumed: Assumptions
) -> Iterator[Saving]:
    """Each change by itself, the one that saves most dollars first, then all that add to neither.

    `read` gives the shape of the run with changes on top.
    """
    now = cost(read(()), assumed)
    tried = [(knob, saving) for knob in KNOBS if (saving := _try(knob, read, cost, assumed, now)) is not None]
    found = [saving for _, saving in tried if abs(saving.seconds) >= 1 or abs(saving.dollars or 0.0) >= 1]
    yield from sorted(found, key=lambda saving: (-(saving.dollars or 0.0), -saving.seconds))
    # What saves nothing by itself may save where something else no longer binds.
    chosen = [knob for knob, saving in tried if saving.seconds > -1 and (saving.dollars or 0.0) > -1]
    if len(found) > 1:
        changes = tuple(change for knob in chosen for change in knob.changes)
        together = Knob("all of these", changes, tuple(one for knob in chosen for one in knob.assumed))
        if (saving := _try(together, read, cost, assumed, now)) is not None:
            yield saving


def _try(
    knob: Knob,
    read: Callable[[Sequence[str]], RunShape],
    cost: Callable[[RunShape, Assumptions], Cost],
    assumed: Assumptions,
    now: Cost,
) -> Saving | None:
    """What it saves; None where the config cannot have it."""
    try:
        then = cost(read(knob.changes), assumed.model_copy(update=dict(knob.assumed)))
    except ConfigError:
        return None
    dollars = None if now.dollars is None or then.dollars is None else now.dollars - then.dollars
    return Saving(knob.what, knob.changes, now.seconds - then.seconds, dollars)
