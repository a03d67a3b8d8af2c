"""Shows one recorded attempt with its judgement."""

from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_records.rollouts.run_record import RolloutEntry
from rubricem_viewer.api.trajectories import ElementText, TrajectoryView
from rubricem_viewer.element_segments import cut_trajectory
from rubricem_viewer.elements import MAX_TEXT
from rubricem_viewer.quotations import select_policy_pieces
from rubricem_viewer.refusals import NotThereError
from rubricem_viewer.run_folder import RunFolder
from rubricem_viewer.stage_views import rubrics_of, stage_views
from rubricem_viewer.trajectory_rows import make_row
from rubricem_viewer.trajectory_view import MAX_QUESTION, view_trajectory
from rubricem_viewer.utf16 import character_at, count_units


def latest_names(run: RunFolder) -> tuple[str, str]:
    """The policy and the judge of the latest recorded attempt; empty where none was recorded."""
    record = run.record
    with record.lock:
        if not len(record.table.rows):
            return "", ""
        group = record.read_group(int(record.table.rows["group"][-1]))
        return record.read_rollout(len(record.table.rows) - 1).rollout.policy, group.judge


def view_attempt(run: RunFolder, rollout_id: str, *, from_element: int = 0) -> TrajectoryView:
    """One trajectory of the run with its judgement.

    Raises:
        NotThereError: there is none of that id.
        FileFormatError: its line cannot be read.
    """
    record = run.record
    with record.lock:
        number = record.find_rollout(rollout_id)
        place = int(record.table.rows["group"][number])
        own = make_row(record, number)
        attempts = record.table.rows["attempt"][record.table.of_group(place)].tolist()
        entry = record.read_rollout(number)
        group = record.read_group(place)
    rollout = entry.rollout
    parsed = parse_trajectory(rollout.trajectory)
    policy_pieces = select_policy_pieces(cut_trajectory(parsed))
    return view_trajectory(parsed, own, from_element=from_element).model_copy(
        update={
            "row": own.model_copy(update={"question": group.question[:MAX_QUESTION]}),
            "policy": rollout.policy,
            "prompt_hash": rollout.prompt_hash,
            "temperature": rollout.temperature,
            "failure": rollout.failure,
            "judge": group.judge,
            "judge_failure": entry.judged.failure,
            "encounter": group.encounter,
            "trained": entry.trained,
            "lessons": tuple(lesson for lesson in group.lessons if own.attempt in lesson.attempts),
            "injections": entry.judged.injections,
            "stages": stage_views(entry, parsed, rubrics=rubrics_of(group), policy_pieces=policy_pieces),
            "input_tokens": rollout.usage.input_tokens,
            "output_tokens": rollout.usage.output_tokens,
            "num_tokens": entry.tokens.length if entry.tokens else 0,
            "attempts": tuple(f"{own.group}-{attempt}" for attempt in attempts),
        }
    )


def view_element(run: RunFolder, rollout_id: str, index: int, *, offset: int) -> ElementText:
    """A part of a long element from a UTF-16 offset on; of a tool's answer, the whole observation.

    Raises:
        NotThereError: there is no such trajectory, or no such element in it.
    """
    pieces = cut_trajectory(parse_trajectory(read_entry(run, rollout_id).rollout.trajectory))
    if index >= len(pieces):
        raise NotThereError(f"the trajectory {rollout_id} has {len(pieces)} elements; there is no number {index}.")
    text = pieces[index].text
    start = character_at(text, min(offset, count_units(text)))
    end = start + MAX_TEXT
    first = count_units(text[:start])
    after = count_units(text[:end]) if end < len(text) else None
    return ElementText(index=index, offset=first, text=text[start:end], next_offset=after)


def read_entry(run: RunFolder, rollout_id: str) -> RolloutEntry:
    with run.record.lock:
        return run.record.read_rollout(run.record.find_rollout(rollout_id))
