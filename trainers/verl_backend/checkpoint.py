"""What a run on veRL resumes from beside veRL's own weights: rubrics, bank, question stream and reflections.

It is written before veRL marks the step as saved, and read for the step of the weights that veRL has loaded: a kill
between the two leaves a newer state here, which is ignored. Old checkpoints are deleted here as well: veRL
deletes only weights that the same process has written, and never its queue.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rubricem_agent.learn.checkpoint import (
    Checkpoint,
    checkpoint_steps,
    find_checkpoint,
    json_part,
    load_checkpoint,
    save_checkpoint,
)
from rubricem_agent.learn.deferred import Ticket
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.snapshot import save_snapshot
from rubricem_agent.reflection.reflector import JudgedAttempt
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement, Rubric
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.scaffold.parsed import parse_trajectory

from .saved_steps import MARKER, marked_step, saved_steps
from .settings import VerlSettings

FOLDER = "rubricem"
"""Under veRL's `trainer.default_local_dir`."""
ROWS = 3
"""The format of the rows in veRL's saved queue and of what is noted about their groups."""
RANKS = "trainer.nnodes*n_gpus_per_node"
"""Another number of them may resume: the weights are divided anew."""


def identity_of(config: Any, settings: VerlSettings) -> dict[str, Any]:
    """What a resumed run must share, of veRL's composed config.

    The curriculum checks that the questions are the same.
    """
    stages = settings.stage_set
    return {
        "data.train_batch_size": config.data.train_batch_size,
        "rows": ROWS,
        "rubricem.window": settings.window,
        "rubricem.repeats": settings.repeats,
        "rubricem.scaffold": f"{stages.name} ({', '.join(stages.scaffold.names)})",
        "rubricem.matrix": [list(row) for row in settings.matrix or stages.matrix],
        "rubricem.credit": settings.credit,
        "rubricem.meta_policy": settings.meta_policy,
        "rubricem.seed": settings.seed,
        "rubricem.bank.embedder": settings.bank.embedder,
        "actor_rollout_ref.rollout.n": config.actor_rollout_ref.rollout.n,
        RANKS: config.trainer.nnodes * config.trainer.n_gpus_per_node,
    }


def check_identity(root: Path, *, step: int, identity: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint that a run resumes from, after checking that the run has its settings.

    Raises:
        UsageError: there is none for that step, it is damaged, or it belongs to a run with other settings.
    """
    try:
        checkpoint = load_checkpoint(find_checkpoint(root, step=step), step=step)
    except UsageError as cause:
        way_out = f"To resume from another step, write its number into {root.parent / MARKER}."
        raise UsageError(f"{cause} {way_out}") from cause
    with checkpoint.restoring():
        saved = dict(checkpoint.read_json("identity"))
    for name, value in identity.items():
        if name != RANKS and (name not in saved or saved[name] != value):
            raise UsageError(
                f"the checkpoint was written with {name}={saved.get(name, 'nothing')}, and this run has {value}; its "
                "rubrics, lessons and advantages would not match. Resume with that value, or start a new run in "
                "another trainer.default_local_dir."
            )
    return checkpoint


def resumed_step(config: Any) -> int:
    """The step that veRL resumes from, of those in the run's folder; 0 for a run that begins anew."""
    marker = Path(config.trainer.default_local_dir).absolute() / MARKER
    return marked_step(marker) if config.trainer.resume_mode == "auto" and marker.is_file() else 0


def save_service(
    root: Path,
    states: Mapping[str, object],
    *,
    bank: RubricBank,
    step: int,
    prompts: Mapping[str, str],
) -> None:
    """Write the checkpoint of a step under `root`: states by name, the bank, and the hashes of all prompts."""
    parts = {name: json_part(state, file=f"{name}.json", step=step) for name, state in states.items()}
    parts["bank"] = ("bank.npz", lambda path: save_snapshot(bank, path, step=step), step)
    save_checkpoint(root, step=step, parts=parts, prompts=prompts)


class WaitingGroup(Frozen):
    """The judged group of a pending reflection. The rubrics are the group's, so they are saved once."""

    ticket: Ticket
    rubrics: tuple[Rubric, ...]
    attempts: tuple[tuple[Trajectory, Judgement], ...]


def pack_attempts(ticket: Ticket, attempts: Sequence[JudgedAttempt]) -> dict[str, Any]:
    pairs = tuple((attempt.parsed.trajectory, attempt.judgement) for attempt in attempts)
    return WaitingGroup(ticket=ticket, rubrics=attempts[0].rubrics, attempts=pairs).model_dump(mode="json")


def unpack_attempts(form: Mapping[str, Any]) -> tuple[Ticket, tuple[JudgedAttempt, ...]]:
    group = WaitingGroup.model_validate(form, strict=False)
    return group.ticket, tuple(
        JudgedAttempt(parse_trajectory(trajectory), judgement, group.rubrics)
        for trajectory, judgement in group.attempts
    )


def prune(folder: Path, *, step: int, keep: int | None) -> None:
    """Keep the latest `keep` checkpoints up to that of `step`, or all where it is None; later ones are not touched."""
    root = folder / FOLDER
    ours = checkpoint_steps(root)
    known = sorted(number for number in {*saved_steps(folder), *ours} if number <= step)
    for number in known[:-keep] if keep else ():
        shutil.rmtree(folder / f"global_step_{number}", ignore_errors=True)
        if number in ours:
            shutil.rmtree(find_checkpoint(root, step=number), ignore_errors=True)
