"""The two updates of a step: Phase A on the reflections of the step before, then Phase B on the rollouts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rubricem_agent.learn.credit import NonFiniteLossError
from rubricem_agent.learn.samples import Sample, pad_batch
from rubricem_records.runs.log_lines import GradientMetrics, UpdateMetrics

from .learner import compare_gradients
from .run import Run


class Updates(NamedTuple):
    """What the updates of a step amounted to; None for one without samples."""

    reflection: UpdateMetrics | None
    task: UpdateMetrics | None
    gradients: GradientMetrics | None
    """How far the two agree, where the step measures it."""

    @property
    def line(self) -> dict[str, Any]:
        """What the step's line says of them."""
        return {name: None if metrics is None else metrics.model_dump() for name, metrics in self._asdict().items()}


def update_policy(run: Run, samples: Sequence[Sample], lessons: Sequence[Sample], *, step: int) -> Updates:
    """Phase A on the reflections, then Phase B on the rollouts; each is one optimiser step."""
    gradients = compare_phases(run, samples, lessons, step=step)
    reflection = update(run, lessons, step, kl_coefficient=run.config.reflection.kl_coefficient)
    task = update(run, samples, step)
    return Updates(reflection, task, gradients)


def update(
    run: Run, samples: Sequence[Sample], step: int, *, kl_coefficient: float | None = None
) -> UpdateMetrics | None:
    """One optimiser step on the samples, if there are any; a refused batch is saved for inspection."""
    if not samples:
        return None
    batch = pad_batch(samples, pad_id=0)
    try:
        return run.learner.update(batch, kl_coefficient=kl_coefficient)
    except NonFiniteLossError:
        batch.save(run.config.out / f"refused-step-{step}.npz")
        raise


def compare_phases(run: Run, task: Sequence[Sample], lessons: Sequence[Sample], *, step: int) -> GradientMetrics | None:
    """Every Nth step, the cosine between the gradients of the two phases; None without both."""
    every = run.config.compare_gradients_every
    if not (every and step % every == 0 and task and lessons):
        return None
    return compare_gradients(run.learner, task=pad_batch(task, pad_id=0), reflection=pad_batch(lessons, pad_id=0))
