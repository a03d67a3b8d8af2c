"""veRL's training workers with one thing changed: an update can leave the learning rate's schedule where it is.

A step of ours is two updates, and the schedule counts steps. veRL moves it after every update, and has no switch.
"""

from typing import Any

from verl.experimental.separation.engine_workers import (  # type: ignore[import-not-found,unused-ignore]
    DetachActorWorker,
)
from verl.utils import tensordict_utils as tu  # type: ignore[import-not-found,unused-ignore]
from verl.workers.engine_workers import (  # type: ignore[import-not-found,unused-ignore]
    ActorRolloutRefWorker,
    TrainingWorker,
)

from trainers.verl_backend.replica import register_replica

HOLDS_SCHEDULE = "rubricem_holds_schedule"
"""In a batch's extra information: update the weights, but do not count a step."""

# The worker looks its sampling engine up by name, in its own process.
register_replica()


class HoldingWorker(TrainingWorker):  # type: ignore[misc,unused-ignore]
    """The engine's worker, within the actor's."""

    def train_batch(self, data: Any) -> Any:
        """One optimiser step, which moves the schedule or not."""
        if tu.get(data, key=HOLDS_SCHEDULE, default=False):
            tu.assign_non_tensor(data, update_lr_scheduler=False)
        return super().train_batch(data)


class StageWorker(ActorRolloutRefWorker):  # type: ignore[misc,unused-ignore]
    """Of the modes in which trainer and engines share their GPUs."""

    actor_worker_cls = HoldingWorker


class StageDetachWorker(DetachActorWorker):  # type: ignore[misc,unused-ignore]
    """Of the mode in which they do not."""

    actor_worker_cls = HoldingWorker
