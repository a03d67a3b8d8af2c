"""The index of rollouts in columns, which are read at once where the index itself is parsed line by line.

    record/rollouts.columns   pieces, one for each step; each is a line of JSON and then its rows in binary

A piece stands for some lines of the index and has their hash, so a reader uses it for exactly these lines and parses
all others. The file can be removed at any time.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from rubricem_env.domain.base import Frozen, Text
from rubricem_records.rollouts.run_record import ROLLOUTS, Count, RolloutHead

COLUMNS_FILE = f"{ROLLOUTS}.columns"

HeadRows = npt.NDArray[np.void]

_COUNTS = ("at", "size", "step", "place", "attempt", "calls", "tokens", "violations")

_MAX_HEADER = 65_536


def row_type(num_stages: int) -> np.dtype[np.void]:
    """A row of a rollout, in about a hundred bytes.

    `ending` is an index into a list of endings, `group` is -1 where the group is not known.
    """
    return np.dtype(
        [
            *((name, "<i8") for name in _COUNTS),
            *(("group", "<i4"), ("ending", "<i4"), ("valid", "?")),
            *(("scores", "<f4", (num_stages,)), ("true", "<f4", (num_stages,))),
        ]
    )


class NamedRows(NamedTuple):
    """Rows, and the endings that they refer to."""

    rows: HeadRows
    endings: tuple[str, ...]


class ColumnsPiece(NamedTuple):
    """The rows that stand for some lines of the index."""

    at: int
    """The byte of the index at which the lines begin."""
    size: int
    digest: str
    named: NamedRows
    begin: int
    """The byte at which the piece begins in the content that it was read from."""

    def stands_for(self, lines: bytes) -> bool:
        """Whether these are the lines."""
        return lines.count(b"\n") == len(self.named.rows) and lines.endswith(b"\n") and self.digest == _digest(lines)


class _PieceHeader(Frozen):
    """The line before the rows of a piece."""

    at: Count
    size: Count
    digest: Text
    rows: Annotated[int, Field(ge=1, le=2**24)]
    stages: Count
    endings: tuple[Text, ...]


def make_rows(columns: Mapping[str, Sequence[Any]], num_stages: int) -> NamedRows:
    """Rows of the fields of `RolloutHead`, still without their groups."""
    endings = tuple(dict.fromkeys(columns["ending"]))
    rows = np.zeros(len(columns["ending"]), dtype=row_type(num_stages))
    rows["group"] = -1
    for name in (*_COUNTS, "valid", "scores", "true"):
        # None becomes NaN.
        rows[name] = np.array(columns[name], dtype=rows.dtype[name].base).reshape(rows[name].shape)
    rows["ending"] = [endings.index(ending) for ending in columns["ending"]]
    return NamedRows(rows, endings)


def pack_piece(heads: Sequence[RolloutHead], lines: bytes, at: int) -> bytes:
    """The piece that stands for `lines`, which begin at a byte of the index."""
    columns = {name: [getattr(head, name) for head in heads] for name in RolloutHead.model_fields}
    stages = len(heads[0].scores)
    rows, endings = make_rows(columns, stages)
    header = _PieceHeader(at=at, size=len(lines), digest=_digest(lines), rows=len(rows), stages=stages, endings=endings)
    return header.model_dump_json().encode() + b"\n" + rows.tobytes()


def read_pieces(content: bytes, num_stages: int) -> tuple[list[ColumnsPiece], int]:
    """The whole pieces at the beginning of some content, and how many bytes they have."""
    kind = row_type(num_stages)
    pieces: list[ColumnsPiece] = []
    end = 0
    while True:
        line_end = content.find(b"\n", end, end + _MAX_HEADER) + 1
        try:
            header = _PieceHeader.model_validate_json(content[end:line_end])
        except ValidationError:
            return pieces, end
        rows_end = line_end + header.rows * kind.itemsize
        if header.stages != num_stages or rows_end > len(content):
            return pieces, end
        named = NamedRows(np.frombuffer(content, kind, header.rows, line_end), header.endings)
        if not _is_sound(named):
            return pieces, end
        pieces.append(ColumnsPiece(header.at, header.size, header.digest, named, end))
        end = rows_end


def end_of_pieces(content: bytes, step: int, num_stages: int) -> int:
    """The bytes of the whole pieces whose rollouts are all of steps up to one."""
    pieces, end = read_pieces(content, num_stages)
    for piece in reversed(pieces):
        if piece.named.rows["step"].max() <= step:
            break
        end = piece.begin
    return end


def _is_sound(named: NamedRows) -> bool:
    """Whether the rows could come from lines that are valid."""
    rows, endings = named
    counts = np.stack([rows[name] for name in _COUNTS])
    numbers = np.concatenate([rows["scores"], rows["true"]], axis=1)
    return bool(
        (counts >= 0).all()
        and (counts <= 2**53).all()
        and (rows["ending"] >= 0).all()
        and (rows["ending"] < len(endings)).all()
        and (rows["valid"].view(np.uint8) <= 1).all()
        and not np.isinf(numbers).any()
    )


def _digest(lines: bytes) -> str:
    return hashlib.sha256(lines).hexdigest()
