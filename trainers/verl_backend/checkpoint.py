"""What a run on veRL restarts from beside veRL's own weights: rubrics, bank, questions and reflections, one manifest.

It is written before veRL writes down that the step is saved, and read at the step of the weights that veRL has read:
a kill between the two leaves a newer state here, which is ignored (choice C15).

Old checkpoints of a run on veRL, deleted whole.

veRL deletes older weights itself, but only those that the same process has written, so that every restart would leave
some for ever; and never its queue, nor what is ours.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.learn.checkpoint import (
    Checkpoint,
    CheckpointItem,
    checkpoint_steps,
    find_checkpoint,
    json_part,
    load_checkpoint,
    save_checkpoint,
)
from rubricem_agent.learn.credit import CheckpointError
from rubricem_agent.learn.deferred import Ticket
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.snapshot import load_snapshot, save_snapshot
from rubricem_agent.reflection.reflector import JudgedAttempt
from rubricem_env.domain.judgement import Judgement, Rubric
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.scaffold.reading import read_trajectory
from trainers.verl_backend.settings import VerlSettings

FOLDER = "rubricem"
"""Under veRL's `trainer.default_local_dir`."""
RANKS = "trainer.nnodes*n_gpus_per_node"
_WHY = "its rubrics, lessons and advantages would not go together"


class DeskState(NamedTuple):
    """The desk as it is saved."""

    judge: dict[str, Any]
    deferred: dict[str, Any]
    waiting: Mapping[Ticket, Sequence[JudgedAttempt]]
    """The judged groups of the reflections that have not ended."""
    bank: RubricBank
    noted: Mapping[str, Any]
    """The judged groups that are not in the record yet."""


class KeptDesk(NamedTuple):
    """The desk and the stream of questions as they were saved; the bank has been restored in place."""

    judge: dict[str, Any]
    deferred: dict[str, Any]
    waiting: dict[Ticket, tuple[JudgedAttempt, ...]]
    stream: dict[str, Any]
    noted: dict[str, Any]

    @property
    def launched(self) -> set[Ticket]:
        """Reflections that are in hand: pending, or ended and not trained on."""
        ended = (*self.deferred["done"], *self.deferred["failed"])
        return {Ticket(*row[:2]) for row in (*self.deferred["pending"], *ended)}


class Shape(NamedTuple):
    """What a checkpoint has to share of veRL's own keys."""

    batch_size: int
    group_size: int
    ranks: int
    """That train."""


def shape_of(config: Any) -> Shape:
    """From veRL's config, composed."""
    trainer = config.trainer
    return Shape(
        config.data.train_batch_size, config.actor_rollout_ref.rollout.n, trainer.nnodes * trainer.n_gpus_per_node
    )


def run_identity(settings: VerlSettings, shape: Shape) -> dict[str, Any]:
    """The settings that a resumed run must share; that the questions are the same is checked by the curriculum."""
    return {
        "data.train_batch_size": shape.batch_size,
        "rubricem.window": settings.window,
        "rubricem.matrix": [list(row) for row in settings.matrix],
        "rubricem.credit": settings.credit,
        "rubricem.meta_policy": settings.meta_policy,
        "rubricem.seed": settings.seed,
        "rubricem.bank.embedder": settings.bank.embedder,
        "actor_rollout_ref.rollout.n": shape.group_size,
        RANKS: shape.ranks,
    }


def refuse_other_run(root: Path, *, step: int, identity: Mapping[str, Any]) -> None:
    """Look at the checkpoint that a run would resume from, before anything is started.

    Raises:
        CheckpointError: there is none of that step, it is damaged, or it belongs to a run with other settings.
    """
    refuse_others(load_checkpoint(find_checkpoint(root, step=step), step=step).read_json("identity"), identity)


def keep_desk(
    root: Path, state: DeskState, *, step: int, stream: dict[str, Any], identity: dict[str, Any]
) -> Checkpoint:
    """Write the checkpoint of a step under `root`."""
    states = {
        "identity": identity,
        "stream": stream,
        "judge": state.judge,
        "deferred": state.deferred,
        "waiting": [_pack(ticket, attempts) for ticket, attempts in state.waiting.items()],
        "noted": dict(state.noted),
    }
    parts = {name: json_part(one, file=f"{name}.json", step=step) for name, one in states.items()}
    parts["bank"] = CheckpointItem("bank.npz", lambda path: save_snapshot(state.bank, path, step=step), step)
    return save_checkpoint(root, step=step, parts=parts)


def resume_desk(root: Path, bank: RubricBank, *, step: int, identity: dict[str, Any]) -> KeptDesk:
    """Read the checkpoint of the step that the weights are of.

    Raises:
        CheckpointError: there is none, it is damaged, or it belongs to a run with other settings.
    """
    checkpoint = load_checkpoint(find_checkpoint(root, step=step), step=step)
    refuse_others(checkpoint.read_json("identity"), identity)
    load_snapshot(bank, checkpoint.path("bank"), step=step)
    return KeptDesk(
        checkpoint.read_json("judge"),
        checkpoint.read_json("deferred"),
        dict(map(_unpack, checkpoint.read_json("waiting"))),
        checkpoint.read_json("stream"),
        checkpoint.read_json("noted"),
    )


def refuse_others(kept: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings than those that the checkpoint was written with."""
    for name, value in here.items():
        if name not in kept or kept[name] != value:
            why = "veRL keeps the weights in a shard a rank" if name == RANKS else _WHY
            raise CheckpointError(
                f"the checkpoint was written with {name}={kept.get(name, 'nothing')}, and this run has {value}; {why}. "
                "Resume with that value, or begin anew in another trainer.default_local_dir."
            )


def _pack(ticket: Ticket, attempts: Sequence[JudgedAttempt]) -> dict[str, Any]:
    """The rubrics are the group's, so they are kept once."""
    return {
        "ticket": list(ticket),
        "rubrics": [rubric.model_dump(mode="json") for rubric in attempts[0].rubrics],
        "attempts": [
            [one.reading.trajectory.model_dump(mode="json"), one.judgement.model_dump(mode="json")] for one in attempts
        ],
    }


def _unpack(form: Mapping[str, Any]) -> tuple[Ticket, tuple[JudgedAttempt, ...]]:
    rubrics = tuple(Rubric.model_validate(one, strict=False) for one in form["rubrics"])
    attempts = tuple(
        JudgedAttempt(
            read_trajectory(Trajectory.model_validate(trajectory, strict=False)),
            Judgement.model_validate(judgement, strict=False),
            rubrics,
        )
        for trajectory, judgement in form["attempts"]
    )
    return Ticket(*form["ticket"]), attempts


_NAME = re.compile(r"global_step_(\d+)")


def prune(folder: Path, *, step: int, keep: int | None) -> None:
    """Keep the latest `keep` checkpoints up to that of `step`, or all where it is None; later ones are not looked at."""
    if not keep:
        return
    weights = {int(name[1]): path for path in folder.glob("global_step_*") if (name := _NAME.fullmatch(path.name))}
    ours = {number: find_checkpoint(folder / FOLDER, step=number) for number in checkpoint_steps(folder / FOLDER)}
    known = sorted(number for number in {*weights, *ours} if number <= step)
    for number in known[:-keep]:
        for path in (weights.get(number), ours.get(number)):
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
