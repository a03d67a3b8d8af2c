"""Reads recorded attempts, one by one, from whatever holds them.

A row is a trajectory, a rollout, a line of a run's record, a line of an evaluation, or an ATIF document. A source is a
run's folder, an evaluation's folder, a folder of files, or a file of one row or of one a line.
"""

import gzip
import json
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rubricem_env.domain.base import well_formed
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import refuse_other_than_file, validating
from rubricem_env.domain.trajectory import load_trajectory
from rubricem_records.evaluations.logs import AnswerRecord, CaseKey, VerdictRecord
from rubricem_records.evaluations.manifest import ANSWERS_FILE, VERDICTS_FILE
from rubricem_records.files.journal import Journal
from rubricem_records.files.packed_lines import PACKED, read_packed
from rubricem_records.rollouts.atif import AtifTrajectory, own_attempt
from rubricem_records.rollouts.foreign_atif import foreign_attempt
from rubricem_records.rollouts.recorded_attempt import RecordedAttempt, unjudged
from rubricem_records.rollouts.rollouts import Rollout, RolloutTrajectory
from rubricem_records.rollouts.run_record import GROUPS, RECORD_FOLDER, ROLLOUTS, GroupEntry, RolloutEntry

LARGEST_FILE = 2**29
"""The most bytes of a file of attempts that is read at once."""

_ATIF = re.compile(r"ATIF-v1(\.\d+)?")


def load_attempt(text: str, where: str, number: int = 0) -> RecordedAttempt:
    """The attempt of one row; `where` names the file or line in the message.

    `number` becomes the attempt's, where the row has none of its own.

    Raises:
        FileFormatError: it is none, or one that lacks what an attempt needs; the message says what.
    """
    fields, text = _object(text)
    if "segments" not in fields and ("schema_version" in fields or "steps" in fields):
        return load_atif(text, where, number)
    if "rollout" in fields:
        with validating(f"{where} is not a line of a run's record"):
            return RecordedAttempt(entry=RolloutEntry.model_validate_json(text))
    if "epoch" in fields:
        with validating(f"{where} is not an answer of an evaluation"):
            attempt = of_answer(AnswerRecord.model_validate_json(text))
        if attempt is None:
            raise FileFormatError(f"{where} has an answer and no trajectory, so its turns are missing.")
        return attempt
    if "trajectory" in fields:
        with validating(f"{where} is not a rollout"):
            return RecordedAttempt(entry=unjudged(Rollout.model_validate_json(text), attempt=number))
    return RecordedAttempt(
        entry=unjudged(Rollout(trajectory=RolloutTrajectory(load_trajectory(text, where)), policy=""))
    )


def load_atif(text: str, where: str, number: int = 0) -> RecordedAttempt:
    """The attempt of an ATIF document: one that we wrote comes back as it was, another one as a plain trajectory.

    Raises:
        FileFormatError: it is no ATIF document of version 1, or lacks a question or an attempt.
    """
    with validating(f"{where} is not an ATIF trajectory"):
        document = AtifTrajectory.model_validate_json(text)
        if not _ATIF.fullmatch(document.schema_version):
            version = document.schema_version[:40]
            raise FileFormatError(f"{where} has the schema_version {version!r}; ATIF-v1.0 to ATIF-v1.8 are read.")
        return own_attempt(document) or foreign_attempt(document, where, number)


def of_answer(record: AnswerRecord, place: int = 0, verdicts: tuple[VerdictRecord, ...] = ()) -> RecordedAttempt | None:
    """The attempt of a line of an evaluation; None where it has an answer alone, or nothing."""
    if record.trajectory is None:
        return None
    rollout = Rollout(
        trajectory=RolloutTrajectory(record.trajectory),
        policy=record.model,
        usage=record.usage,
        failure=record.failure,
    )
    entry = unjudged(rollout, place=place, attempt=record.epoch)
    return RecordedAttempt(entry=entry, answer=record.model_copy(update={"trajectory": None}), verdicts=verdicts)


def read_attempts(source: Path) -> Iterator[RecordedAttempt]:
    """The attempts of a run, an evaluation, a folder of files or a file, in order.

    Raises:
        FileFormatError: it holds none, or a line of it is damaged.
    """
    record = next((folder for folder in (source / RECORD_FOLDER, source) if _lines_of(folder, ROLLOUTS)), None)
    if record is not None:
        yield from _recorded(record)
    elif (source / ANSWERS_FILE).exists():
        yield from _answered(source)
    elif source.is_dir():
        files = sorted((file for file in source.glob("*.json") if is_attempt(file)), key=_numbers_of)
        if not files:
            raise FileFormatError(
                f"{source} holds no attempts: no {RECORD_FOLDER}/{ROLLOUTS}{PACKED}, no {ANSWERS_FILE} and no "
                "trajectory in a .json file. Give the folder of a run or of an evaluation, or a file of trajectories."
            )
        for file in files:
            yield from read_file(file).values()
    else:
        yield from read_file(source).values()


def read_file(file: Path) -> dict[int, RecordedAttempt]:
    """The attempts of a file by the number of their line; a file of one JSON object is line 1.

    Raises:
        FileFormatError: it cannot be read, or a row of it is no attempt.
    """
    rows = read_rows(file)
    named = {number: str(file) if len(rows) == 1 else f"{file}, line {number}" for number in rows}
    return {number: load_attempt(text, named[number], number - 1) for number, text in rows.items()}


def read_rows(file: Path) -> dict[int, str]:
    """The text of each row of a JSONL file by its line number; a file of one JSON object is row 1.

    Raises:
        FileFormatError: the file cannot be read, or is too large.
    """
    refuse_other_than_file(file, "file of trajectories")
    try:
        with (gzip.open if file.name.endswith(PACKED) else open)(file, "rb") as opened:
            content = opened.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise FileFormatError(
                f"{file} has more than {LARGEST_FILE:,} bytes, the most of a file of trajectories. Split it by lines."
            )
        text = content.decode(encoding="utf-8", errors="surrogatepass")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {file}: {cause}. Give the path of a trajectory file.") from cause
    # Not splitlines: a line separator such as U+2028 may stand inside a JSON string.
    rows = {number: row for number, row in enumerate(text.split("\n"), start=1) if row.strip()}
    is_jsonl = len(rows) > 1 and all(row[0] == "{" and row.rstrip()[-1] == "}" for row in list(rows.values())[:2])
    return rows if is_jsonl else {1: text}


def is_attempt(file: Path) -> bool:
    """Whether a file looks like an ATIF document or a trajectory, by its beginning alone."""
    if not file.is_file():
        return False
    try:
        with file.open("rb") as opened:
            beginning = opened.read(4_096)
    except OSError:
        return False
    return b'"ATIF-v' in beginning or b'"segments"' in beginning


def _recorded(folder: Path) -> Iterator[RecordedAttempt]:
    groups: dict[tuple[int, int], GroupEntry] = {}
    for where, line in _lines(_lines_of(folder, GROUPS)):
        with validating(f"{where} is not a group of a run's record"):
            group = GroupEntry.model_validate_json(line)
        groups[group.step, group.place] = group
    for where, line in _lines(_lines_of(folder, ROLLOUTS)):
        with validating(f"{where} is not a line of a run's record"):
            entry = RolloutEntry.model_validate_json(line)
        yield RecordedAttempt(entry=entry, group=groups.get((entry.step, entry.place)))


def _answered(folder: Path) -> Iterator[RecordedAttempt]:
    verdicts: defaultdict[CaseKey, list[VerdictRecord]] = defaultdict(list)
    for verdict in Journal.read(folder / VERDICTS_FILE, VerdictRecord).records:
        verdicts[verdict.key.case].append(verdict)
    for place, record in enumerate(Journal.read(folder / ANSWERS_FILE, AnswerRecord).records):
        attempt = of_answer(record, place, tuple(verdicts[record.key]))
        if attempt is not None:
            yield attempt


def _lines(file: Path | None) -> Iterator[tuple[str, bytes]]:
    """The whole lines of a file, each after its place; a last line that a run is still writing is not whole."""
    if file is None:
        return
    refuse_other_than_file(file, "record")
    for number, line in enumerate(read_packed(file), start=1):
        yield f"{file}, line {number}", line


def _numbers_of(file: Path) -> tuple[list[int], str]:
    """Sorts 1-0-10.json after 1-0-2.json."""
    return [int(number) for number in re.findall(r"[0-9]{1,9}", file.stem)], file.name


def _lines_of(folder: Path, kind: str) -> Path | None:
    """A file of a record, as it is written or unpacked by hand."""
    return next((file for end in (PACKED, ".jsonl") if (file := folder / f"{kind}{end}").exists()), None)


def _object(text: str) -> tuple[Mapping[str, Any], str]:
    """The fields of a JSON object and its text without lone surrogates, which strict readers refuse.

    There are no fields where the text is something else, which its reader will say.
    """
    try:
        fields = json.loads(text)
        if isinstance(fields, dict):
            return fields, str(well_formed(json.dumps(fields, ensure_ascii=False)))
    except (ValueError, RecursionError):
        pass
    return {}, text
