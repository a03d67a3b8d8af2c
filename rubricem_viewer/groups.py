"""Views of a run's record: pages, trajectories, tokens, groups side by side, and the rubrics of a question over time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from rubricem_agent.learn.metrics import count_repeats
from rubricem_agent.learn.record import RECORD_FOLDER, VOCABULARY_FILE, GroupEntry, RolloutEntry
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.inputs import read_text, validating
from rubricem_env.domain.judgement import Rubric
from rubricem_env.judge.scoring import fulfillment
from rubricem_env.judge.separation import score_variance
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory
from rubricem_viewer import api, records, trajectories
from rubricem_viewer.runs import RunFolder

OPENING_CHARS, ANSWER_CHARS = 400, 2_000
MAX_GROUPS = 200
"""Of one question's history: the latest."""
MAX_STEPS = 50
"""Listed of one question."""


Member = tuple[api.TrajectoryRow, RolloutEntry, ParsedTrajectory]
"""One rollout of a group."""


def view_group(run: RunFolder, group_id: str, *, sort: str = "attempt") -> api.GroupView:
    """A group side by side; `sort` is attempt, mean, or a stage, whose best comes first.

    Raises:
        NotThereError: there is none of that id.
    """
    record = run.record
    with record.lock:
        number = record.find_group(group_id)
        group = record.read_group(number)
        rows = record.table.of_group(number).tolist()
        rollouts = [(records.make_row(record, row), record.read_rollout(row)) for row in rows]
    members = [(row, one, parse_trajectory(one.rollout.trajectory)) for row, one in rollouts]
    ordered = sorted(members, key=lambda member: _rank(member[0], sort))
    rubrics = trajectories.rubrics_of(group)
    separators = sorted(_separators(ordered, rubrics), key=lambda one: -one.spread)
    return api.GroupView(
        id=group_id,
        step=group.step,
        encounter=group.encounter,
        question=group.question[: trajectories.MAX_QUESTION],
        question_key=group.query_key,
        judge=group.judge,
        rubrics=tuple(rubrics.values()),
        rollouts=tuple(
            api.GroupRollout(
                row=row,
                advantages=records.stage_scores(entry.advantages or (None,) * 4),
                trained=entry.trained,
                opening=parsed.stage_text(Stage.PLAN)[:OPENING_CHARS],
                answer=(parsed.answer or "")[:ANSWER_CHARS],
            )
            for row, entry, parsed in ordered
        ),
        separators=tuple(separators),
        lessons=group.lessons,
        proposal_failure=group.proposal_failure,
        refused=group.refused,
    )


def _rank(row: api.TrajectoryRow, sort: str) -> tuple[float, int]:
    """The best first, and those without a score last; by attempt alone, or among equals."""
    score = {"attempt": 0.0, "mean": row.mean, **dict(row.scores)}[sort]
    return (1.0 if score is None else -score), row.attempt


_Compared = tuple[Literal["stage", "rubric", "statistic"], str, str, str, Sequence[float | None], float]
"""Kind, key, title and stage of a separator, its value for each attempt, and the range of such values."""


def _separators(members: Sequence[Member], rubrics: Mapping[str, Rubric]) -> Iterator[api.Separator]:
    """What differs between the attempts; what is the same in all is left out."""
    means = [row.mean for row, _, _ in members]
    stage_scores = [dict(row.scores) for row, _, _ in members]
    compared: list[_Compared] = [
        ("stage", stage.value, stage.value, stage.value, [scores[stage.value] for scores in stage_scores], 1.0)
        for stage in STAGES
    ]
    for rubric in rubrics.values():
        scores = [
            {one.rubric_id: one.score for one in entry.judged.rubric_scores}.get(rubric.id) for _, entry, _ in members
        ]
        met = [None if score is None else fulfillment(rubric, score) for score in scores]
        compared.append(("rubric", rubric.id, rubric.title, rubric.stage.value, met, 1.0))
    for name, read in _STATISTICS.items():
        counts = [float(read(row, parsed)) for row, _, parsed in members]
        compared.append(("statistic", name, name, "", counts, max(counts, default=0.0)))
    for kind, key, title, of_stage, values, scale in compared:
        given = [value for value in values if value is not None]
        spread = float(np.std(given)) / scale if given and scale > 0 else 0.0
        if spread > 0:
            yield api.Separator(
                kind=kind,
                key=key,
                title=title,
                stage=of_stage,
                values=tuple(records.number_or_none(value) for value in values),
                spread=round(spread, 4),
                agreement=_correlation(values, means),
            )


def _correlation(values: Sequence[float | None], means: Sequence[float | None]) -> float | None:
    pairs = np.array([(a, b) for a, b in zip(values, means, strict=True) if a is not None and b is not None])
    if len(pairs) < 2 or np.ptp(pairs, axis=0).min() < 1e-9:
        return None
    return records.number_or_none(float(np.corrcoef(pairs.T)[0, 1]))


_STATISTICS: Mapping[str, Callable[[api.TrajectoryRow, ParsedTrajectory], int]] = {
    "searches": lambda row, _: row.calls,
    "repeated searches": lambda _, parsed: count_repeats([turn.call for turn in parsed.turns if turn.call is not None]),
    "words of the answer": lambda _, parsed: len((parsed.answer or "").split()),
    "citations": lambda _, parsed: len(parsed.citations.known),
    "unknown citations": lambda _, parsed: len(parsed.citations.unknown),
    "tokens": lambda row, _: row.tokens,
    "violations": lambda row, _: row.violations,
}

JudgedGroup = tuple[str, GroupEntry, Sequence[RolloutEntry]]
"""A group's id and entry with its rollouts, by attempt."""


def view_history(run: RunFolder, question_key: str) -> api.RubricHistory:
    """What became of every rubric of one question.

    Raises:
        NotThereError: the run has not met it.
    """
    record = run.record
    with record.lock:
        groups: list[JudgedGroup] = []
        for number in record.groups_of(question_key)[-MAX_GROUPS:]:
            rollouts = [record.read_rollout(row) for row in record.table.of_group(number).tolist()]
            groups.append((record.groups[number].id, record.read_group(number), rollouts))
    rubrics: dict[str, Rubric] = {}
    for _, entry, _ in groups:
        rubrics |= trajectories.rubrics_of(entry)
    ordered = sorted(rubrics.values(), key=lambda rubric: (rubric.stage.position, rubric.provenance.step))
    last = groups[-1][1]
    return api.RubricHistory(
        key=last.query_key,
        question=last.question[: trajectories.MAX_QUESTION],
        steps=tuple(
            api.StepNote(
                step=entry.step,
                group=group_id,
                encounter=entry.encounter,
                refused=entry.refused,
                failure=entry.proposal_failure,
            )
            for group_id, entry, _ in groups
        ),
        rubrics=tuple(_life(rubric, groups) for rubric in ordered),
    )


def _life(rubric: Rubric, groups: Sequence[JudgedGroup]) -> api.RubricLife:
    events: list[api.RubricEvent] = []
    fate: api.Fate
    for group_id, entry, rollouts in groups:
        known = next((one for one in entry.active if one.rubric.id == rubric.id), None)
        gone = next((one for one in entry.retired if one.last.rubric.id == rubric.id), None)
        is_persistent = rubric.persistent and any(one.id == rubric.id for one in entry.rubrics)
        if gone is not None:
            fate = "retired"
        elif known is None and not is_persistent:
            continue
        elif not events:
            fate = "born"
        else:
            fate = "returned" if events[-1].fate == "retired" else "kept"
        rubric_scores = (score for rollout in rollouts for score in rollout.judged.rubric_scores)
        scores = tuple(score.score for score in rubric_scores if score.rubric_id == rubric.id)
        last = known or (gone.last if gone else None)
        variance = last.variance if last is not None else None
        if variance is None and len(scores) > 1:
            variance = score_variance(scores)
        events.append(
            api.RubricEvent(
                step=entry.step,
                group=group_id,
                fate=fate,
                reason=gone.reason if gone else "",
                variance=records.number_or_none(variance),
                scores=scores,
                mean=records.number_or_none(sum(scores) / len(scores)) if scores else None,
            )
        )
    is_retired = bool(events) and events[-1].fate == "retired"
    return api.RubricLife(
        rubric=rubric,
        status="persistent" if rubric.persistent else "retired" if is_retired else "active",
        events=tuple(events),
    )


def list_trajectories(run: RunFolder, wanted: records.RolloutFilter) -> api.TrajectoryPage:
    """A page of the trajectories that pass."""
    record = run.record
    with record.lock:
        found = record.table.select(wanted, _wanted_groups(record, wanted))
        steps = record.table.rows["step"]
        return api.TrajectoryPage(
            total=len(steps),
            matched=len(found),
            page=wanted.page,
            size=wanted.size,
            rows=tuple(records.make_row(record, row) for row in found[wanted.rows].tolist()),
            endings=tuple(filter(None, record.table.endings)),
            steps=(int(steps.min()), int(steps.max())) if len(steps) else None,
        )


def _wanted_groups(record: records.RunRecordReader, wanted: records.RolloutFilter) -> npt.NDArray[np.bool_] | None:
    """Which groups pass, by number; None where all are wanted."""
    if not (wanted.q.strip() or wanted.question or wanted.group or wanted.lesson):
        return None
    questions = record.questions_with(wanted.q)
    return np.array(
        [
            head.query_key in questions
            and wanted.question in ("", head.query_key)
            and wanted.group in ("", head.id)
            and (not wanted.lesson or any(shown.item == wanted.lesson for shown in head.lessons))
            for head in record.groups
        ],
        dtype=bool,
    )


def latest_names(run: RunFolder) -> tuple[str, str]:
    """The policy and the judge of the latest recorded attempt; empty where none was recorded."""
    record = run.record
    with record.lock:
        if not len(record.table.rows):
            return "", ""
        group = record.read_group(int(record.table.rows["group"][-1]))
        return record.read_rollout(len(record.table.rows) - 1).rollout.policy, group.judge


def view_attempt(run: RunFolder, rollout_id: str, *, from_element: int = 0) -> api.TrajectoryView:
    """One trajectory of the run with its judgement.

    Raises:
        NotThereError: there is none of that id.
        FileFormatError: its line cannot be read.
    """
    record = run.record
    with record.lock:
        number = record.find_rollout(rollout_id)
        place = int(record.table.rows["group"][number])
        own = records.make_row(record, number)
        attempts = record.table.rows["attempt"][record.table.of_group(place)].tolist()
        entry, group = record.read_rollout(number), record.read_group(place)
    rollout, parsed = entry.rollout, parse_trajectory(entry.rollout.trajectory)
    policy_pieces = trajectories.select_policy_pieces(trajectories.cut_trajectory(parsed))
    return trajectories.view_trajectory(parsed, own, from_element=from_element).model_copy(
        update={
            "row": own.model_copy(update={"question": group.question[: trajectories.MAX_QUESTION]}),
            "policy": rollout.policy,
            "prompt_hash": rollout.prompt_hash,
            "temperature": rollout.temperature,
            "failure": rollout.failure,
            "judge": group.judge,
            "judge_failure": entry.judged.failure,
            "encounter": group.encounter,
            "trained": entry.trained,
            "lessons": group.lessons,
            "injections": entry.judged.injections,
            "stages": trajectories.stage_views(
                entry, parsed, rubrics=trajectories.rubrics_of(group), policy_pieces=policy_pieces
            ),
            "input_tokens": rollout.usage.input_tokens,
            "output_tokens": rollout.usage.output_tokens,
            "num_tokens": entry.tokens.length if entry.tokens else 0,
            "attempts": tuple(f"{own.group}-{attempt}" for attempt in attempts),
        }
    )


def view_element(run: RunFolder, rollout_id: str, index: int, *, offset: int) -> api.ElementText:
    """A part of a long element from a UTF-16 offset on; of a tool's answer, the whole observation.

    Raises:
        NotThereError: there is no such trajectory, or no such element in it.
    """
    pieces = trajectories.cut_trajectory(parse_trajectory(_entry(run, rollout_id).rollout.trajectory))
    if index >= len(pieces):
        raise records.NotThereError(
            f"the trajectory {rollout_id} has {len(pieces)} elements; there is no number {index}."
        )
    text = pieces[index].text
    start = trajectories.character_at(text, min(offset, trajectories.count_units(text)))
    end = start + trajectories.MAX_TEXT
    first, after = (
        trajectories.count_units(text[:start]),
        trajectories.count_units(text[:end]) if end < len(text) else None,
    )
    return api.ElementText(index=index, offset=first, text=text[start:end], next_offset=after)


def list_tokens(run: RunFolder, rollout_id: str, *, offset: int, limit: int) -> api.TokenPage:
    """Tokens of a trajectory from `offset` on, with the advantage of the stage that each belongs to.

    Raises:
        NotThereError: there is none of that id.
        FileFormatError: the recorded tokens are damaged.
    """
    entry, vocabulary = _entry(run, rollout_id), _vocabulary(run.folder)
    if entry.tokens is None:
        return api.TokenPage(total=0, offset=0, prompt_length=0, texts=(), stages=(), logprobs=(), advantages=())
    ids, stages, logprobs = (column[offset : offset + limit].tolist() for column in entry.tokens.unpack())
    credit = (*(entry.advantages or (None,) * 4), None)
    return api.TokenPage(
        total=entry.tokens.length,
        offset=offset,
        prompt_length=entry.tokens.prompt_length,
        texts=tuple(vocabulary[one] if 0 <= one < len(vocabulary) else f"#{one}" for one in ids),
        stages=tuple(stages),
        logprobs=tuple(round(one, 3) if at >= 0 else None for one, at in zip(logprobs, stages, strict=True)),
        advantages=tuple(credit[stage] if -1 <= stage < 4 else None for stage in stages),
    )


def _entry(run: RunFolder, rollout_id: str) -> RolloutEntry:
    with run.record.lock:
        return run.record.read_rollout(run.record.find_rollout(rollout_id))


def _vocabulary(run: Path) -> Sequence[str]:
    """What each token says; empty where that was not recorded."""
    path = run / RECORD_FOLDER / VOCABULARY_FILE
    if not path.is_file():
        return ()
    with validating(f"{path} cannot be read", "Remove it to see token numbers instead."):
        return TypeAdapter(tuple[str, ...]).validate_json(read_text(path, "a run's vocabulary"))


def list_questions(run: RunFolder, wanted: records.PageFilter) -> api.QuestionPage:
    """A page of the questions that were met, in the order of their first meeting."""
    record = run.record
    with record.lock:
        groups: dict[str, list[int]] = {}
        for number, head in enumerate(record.groups):
            groups.setdefault(head.query_key, []).append(number)
        found = record.questions_with(wanted.q)
        matched = [key for key in groups if key in found]
        return api.QuestionPage(
            total=len(groups),
            matched=len(matched),
            page=wanted.page,
            size=wanted.size,
            rows=tuple(_question_row(record, groups[key]) for key in matched[wanted.rows]),
        )


def _question_row(record: records.RunRecordReader, groups: Sequence[int]) -> api.QuestionRow:
    last = record.groups[groups[-1]]
    means = records.mean_of(record.table.rows["scores"][record.table.of_group(groups[-1])])
    known = means[~np.isnan(means)]
    return api.QuestionRow(
        key=last.query_key,
        question=last.question,
        steps=tuple(record.groups[number].step for number in groups[-MAX_STEPS:]),
        active=last.active,
        retired=sum(record.groups[number].retired for number in groups),
        mean=records.number_or_none(float(known.mean())) if len(known) else None,
    )
