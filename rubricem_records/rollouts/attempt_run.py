"""Writes recorded attempts as the folder of a run, which the viewer shows."""

from collections.abc import Iterable
from pathlib import Path

from rubricem_records.files.atomic_files import writing
from rubricem_records.rollouts.recorded_attempt import RecordedAttempt
from rubricem_records.rollouts.run_record import RECORD_FOLDER, GroupEntry, RolloutEntry
from rubricem_records.rollouts.run_recorder import RunRecorder
from rubricem_records.runs.run_log import METRICS_FILE


def write_attempt_run(attempts: Iterable[RecordedAttempt], folder: Path) -> None:
    """Write a run with a record and an empty log.

    Attempts that a training run recorded keep their group, except where another run has one of the same number. All
    others are grouped by question, as attempts of step 0.

    Raises:
        UsageError: the folder cannot be written.
    """
    groups: dict[tuple[int, int], tuple[GroupEntry, list[RolloutEntry]]] = {}
    place_of: dict[str, int] = {}
    for recorded in attempts:
        entry, group = recorded.entry, recorded.group
        known = groups.get((group.step, group.place)) if group is not None else None
        if group is None or (known is not None and known[0] != group):
            trajectory = recorded.trajectory
            place = place_of.setdefault(trajectory.query_key, len(place_of))
            group = GroupEntry(step=0, place=place, query_key=trajectory.query_key, question=trajectory.question)
            attempt = len(groups[0, place][1]) if (0, place) in groups else 0
            entry = entry.model_copy(update={"step": 0, "place": place, "attempt": attempt})
        groups.setdefault((group.step, group.place), (group, []))[1].append(entry)
    recorder = RunRecorder(folder / RECORD_FOLDER)
    recorder.begin(0, embedder="")
    recorder.record_step(groups[key] for key in sorted(groups))
    with writing(folder, "Make room."):
        (folder / METRICS_FILE).touch()
