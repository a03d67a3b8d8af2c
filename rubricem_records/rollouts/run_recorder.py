"""Writes the record of a run, step by step, and cuts it back when the run resumes."""

import base64
import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from rubricem_env.domain.base import STAGES, Frozen
from rubricem_env.domain.errors import UsageError
from rubricem_records.bank.bank_items import StoredItem
from rubricem_records.files.atomic_files import write_atomic, writing
from rubricem_records.files.line_file import LineFile
from rubricem_records.files.packed_lines import PACKED, pack_line
from rubricem_records.rollouts.record_settings import WHOLE, RecordSettings
from rubricem_records.rollouts.rollout_columns import COLUMNS_FILE, end_of_pieces, pack_piece
from rubricem_records.rollouts.run_record import (
    GROUPS,
    LESSONS,
    RECORD_VERSION,
    ROLLOUTS,
    VOCABULARY_FILE,
    Entry,
    GroupEntry,
    GroupHead,
    Header,
    LessonLine,
    RolloutEntry,
    RolloutHead,
    group_head,
    rollout_head,
)

Head = TypeVar("Head", GroupHead, RolloutHead)


class RunRecorder:
    """The record of one run, in its folder. One process writes it at a time; any number may read meanwhile."""

    def __init__(
        self,
        folder: Path,
        *,
        sampled: RecordSettings = WHOLE,
        switch: str = "record=false",
        stages: tuple[str, ...] = STAGES,
    ) -> None:
        self._folder = folder
        self._stages = stages
        self._sampled = sampled
        self._switch = switch
        """How the run is told to keep none."""
        self._way_out = f"Make room, and the same command resumes; or train with {switch}."
        self.bank_revision = 0
        """The latest change of the bank that is in the record."""

    def begin(self, step: int, *, embedder: str) -> None:
        """Go on after `step`: what was recorded of later ones is cut off. Call it once before anything is recorded.

        `embedder` is the bank's, by name.

        Raises:
            UsageError: the folder cannot be written, another release recorded in it, or a line in it cannot be read.
        """
        header = Header(record=RECORD_VERSION, name=secrets.token_hex(8), stages=self._stages)
        with writing(self._folder, self._way_out):
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._cut_columns(step)
                for kind in (ROLLOUTS, GROUPS):
                    self._cut(kind, step, header)
                kept = [line for line in _lines(self._lessons) if json.loads(line)["step"] <= step]
                self.bank_revision = max((json.loads(line)["item"]["revision"] for line in kept), default=0)
                _replace(self._lessons, header.model_copy(update={"embedder": embedder}), kept)
            except UsageError:
                raise
            except (ValueError, KeyError, TypeError, RecursionError) as cause:
                raise UsageError(
                    f"a line of the record {self._folder} cannot be read, so it cannot be resumed. Move that folder "
                    f"away, and the same command begins a new one at its step; or train with {self._switch}."
                ) from cause

    def record_step(self, entries: Iterable[tuple[GroupEntry, Sequence[RolloutEntry]]]) -> None:
        """Append the groups of a step with their rollouts, as far as the settings keep them.

        Raises:
            UsageError: the disk refuses.
        """
        groups: list[GroupHead] = []
        attempts: list[RolloutHead] = []
        for group, rollouts in entries:
            if group.step % self._sampled.every == 0:
                groups += self._append(GROUPS, [group], group_head)
                attempts += self._append(ROLLOUTS, self._sampled.choose(rollouts), rollout_head)
        self._write(self._index(GROUPS), _lines_of(groups))
        lines = _lines_of(attempts)
        at = self._write(self._index(ROLLOUTS), lines)
        if attempts:
            self._write(self._columns, pack_piece(attempts, lines, at))

    def record_lessons(self, changed: Sequence[StoredItem], *, step: int) -> None:
        """Append what has changed in the bank: `bank.contents(since=recorder.bank_revision)`."""
        lines = [
            LessonLine(step=step, item=item, vector=base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii"))
            for item, vector in changed
        ]
        with writing(self._folder, self._way_out):
            LineFile(self._lessons).append([line.model_dump_json().encode() for line in lines])
        self.bank_revision = max([self.bank_revision, *(line.item.revision for line in lines)])

    def record_vocabulary(self, texts: Callable[[], Sequence[str]]) -> None:
        """Write what each token says, unless it is there."""
        path = self._folder / VOCABULARY_FILE
        if not path.exists():
            content = json.dumps(texts(), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
            with writing(self._folder, self._way_out):
                write_atomic(path, content)

    def _append(self, kind: str, entries: Sequence[Entry], head_of: Callable[[Entry, int, int], Head]) -> list[Head]:
        packed = [pack_line(entry.model_dump_json().encode()) for entry in entries]
        at = self._write(self._data(kind), b"".join(packed))
        heads = []
        for entry, line in zip(entries, packed, strict=True):
            heads.append(head_of(entry, at, len(line)))
            at += len(line)
        return heads

    def _write(self, path: Path, content: bytes) -> int:
        """Append to a file; returns the byte at which the content begins."""
        with writing(self._folder, self._way_out):
            return LineFile(path).append_bytes(content)

    def _cut_columns(self, step: int) -> None:
        """Keep the pieces up to `step`; a reader must not meet pieces of two recordings, so this comes first."""
        if self._columns.exists():
            content = self._columns.read_bytes()
            write_atomic(self._columns, content[: end_of_pieces(content, step, len(self._stages))])

    def _cut(self, kind: str, step: int, header: Header) -> None:
        """Keep the lines up to `step`, in the data and in its index."""
        kept = []
        end = 0
        for line in _lines(self._index(kind)):
            fields = json.loads(line)
            if fields["step"] > step:
                break
            kept.append(line)
            end = fields["at"] + fields["size"]
        with self._data(kind).open("ab") as file:
            file.truncate(end)
        _replace(self._index(kind), header, kept)

    @property
    def _columns(self) -> Path:
        return self._folder / COLUMNS_FILE

    @property
    def _lessons(self) -> Path:
        return self._folder / f"{LESSONS}.jsonl"

    def _data(self, kind: str) -> Path:
        return self._folder / f"{kind}{PACKED}"

    def _index(self, kind: str) -> Path:
        return self._folder / f"{kind}.index.jsonl"


def _lines_of(heads: Sequence[Frozen]) -> bytes:
    return b"".join(head.model_dump_json().encode() + b"\n" for head in heads)


def _lines(path: Path) -> list[str]:
    """The whole lines after the first; nothing of a file that is not there, or that is no part of a record."""
    try:
        text = path.read_text(encoding="utf-8")
        first, *rest = text[: text.rfind("\n") + 1].split("\n")[:-1] or [""]
        header = Header.model_validate_json(first)
    except (FileNotFoundError, UnicodeDecodeError, ValidationError):
        return []
    if header.record != RECORD_VERSION:
        raise UsageError(
            f"{path} has format {header.record}, and this release records in format {RECORD_VERSION}. Move the folder "
            f"{path.parent} away, and the same command begins a new one at its step."
        )
    return rest


def _replace(path: Path, header: Header, lines: Sequence[str]) -> None:
    content = "".join(f"{line}\n" for line in (header.line(), *lines)).encode()
    write_atomic(path, content)
