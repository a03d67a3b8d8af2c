"""Saves the bank of one training step in one file with a hash, and exchanges banks as JSONL files.

A checkpoint holds the weights of a step; the bank that goes with them is that of the same step. Imported
reflections pass the write gate.
"""

import hashlib
import math
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from tokenize import TokenError
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import Embedder, Floats
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.memory.store import MemoryStore
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_env.domain.inputs import read_text, refuse_larger_than_memory, validating
from rubricem_env.domain.reflection import Reflection
from rubricem_env.domain.trajectory import query_key
from rubricem_records.bank.bank_items import BankItem, StoredItem
from rubricem_records.files.atomic_files import write_atomic, writing

SNAPSHOT_VERSION = 1
_UNREADABLE = (OSError, ValueError, KeyError, EOFError, RuntimeError, SyntaxError, TokenError, zipfile.BadZipFile)
"""What zipfile and numpy raise for damaged files."""


class _Contents(Frozen):
    """A snapshot without its vectors."""

    version: Annotated[int, Field(ge=1, le=SNAPSHOT_VERSION)] = SNAPSHOT_VERSION
    step: Annotated[int, Field(ge=0)]
    embedder: Text
    keys: tuple[Text, ...]
    """The question that each vector belongs to."""
    items: tuple[BankItem, ...]


def save_snapshot(bank: RubricBank, path: Path, *, step: int) -> None:
    """Write the bank's present items atomically."""
    contents = bank.contents()
    vectors = {item.key: vector for item, vector in contents}
    described = _Contents(
        step=step, embedder=bank.embedder_name, keys=tuple(vectors), items=tuple(item for item, _ in contents)
    )
    text = np.frombuffer(described.model_dump_json().encode(), dtype=np.uint8)
    rows = np.array(list(vectors.values()), dtype=np.float32)
    digest = np.frombuffer(_digest(text.tobytes(), rows), dtype=np.uint8)
    write_atomic(path, lambda file: np.savez(file, contents=text, vectors=rows, sha256=digest))


def load_snapshot(bank: RubricBank, path: Path, *, step: int) -> None:
    """Restore the bank of a step; items that a person has removed since then stay removed.

    Raises:
        FileFormatError: there is no such file, or it is damaged, of a newer release, or of another embedder.
        UsageError: the file is of another step.
    """
    described, vectors = _read(path)
    if described.step != step:
        raise UsageError(
            f"checkpoint at step {step} holds a bank of step {described.step}; refusing to mix them. Resume from step "
            f"{described.step}, or restore {path.name} from its own run."
        )
    if described.embedder != bank.embedder_name:
        raise FileFormatError(
            f"{path} holds vectors of {described.embedder}; this bank embeds with {bank.embedder_name}. Set "
            f"bank.embedder to {described.embedder} to resume."
        )
    bank.restore(_stored(described, vectors))


def open_snapshot(path: Path, embedder_of: Callable[[str], Embedder] | None) -> RubricBank:
    """A bank in memory with the items of a snapshot; `embedder_of` makes an embedder from its name if one is needed.

    Raises:
        FileFormatError: there is no such file, or it is damaged, or of a newer release.
    """
    described, vectors = _read(path)
    embedder = embedder_of(described.embedder) if embedder_of else None
    dimension = embedder.dimension if embedder else vectors.shape[-1] if vectors.size else 1
    bank = RubricBank(MemoryStore(embedder=described.embedder, dimension=dimension), embedder)
    bank.restore(_stored(described, vectors))
    return bank


def _stored(described: _Contents, vectors: Floats) -> list[StoredItem]:
    by_key = dict(zip(described.keys, vectors, strict=True))
    return [StoredItem(item, by_key[item.key]) for item in described.items]


def _read(path: Path) -> tuple[_Contents, Floats]:
    refuse_larger_than_memory(path)
    try:
        with zipfile.ZipFile(path) as archive:
            text = _member(archive, "contents").tobytes()
            vectors = _member(archive, "vectors")
            digest = _member(archive, "sha256").tobytes()
    except FileNotFoundError as cause:
        raise FileFormatError(f"there is no bank snapshot {path}; a checkpoint needs the bank of its step.") from cause
    except _UNREADABLE as cause:
        said = " ".join(str(cause).split())
        raise FileFormatError(f"{path} is not a bank snapshot: {said}.") from cause
    if _digest(text, vectors) != digest:
        raise FileFormatError(f"{path} is damaged: its contents do not match its hash. Resume from another step.")
    with validating(f"{path} is not a bank snapshot that this release reads (up to version {SNAPSHOT_VERSION})"):
        return _Contents.model_validate_json(text), vectors


def _member(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """An array of the file. None is stored compressed, so that none unfolds, and its header claims what is there.

    Raises:
        ValueError: it is another kind of file.
    """
    stored = archive.getinfo(f"{name}.npy")
    if stored.compress_type != zipfile.ZIP_STORED or stored.file_size != stored.compress_size:
        raise ValueError(f"{name} is compressed, and may unfold to any size")
    with archive.open(stored) as file:
        major, _ = np.lib.format.read_magic(file)
        if major != 1:
            raise ValueError(f"{name} has an array format of another release")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        expected = np.dtype(np.float32 if name == "vectors" else np.uint8)
        held = stored.file_size - file.tell()
        if dtype != expected or is_fortran or math.prod(shape) * dtype.itemsize != held:
            raise ValueError(f"{name} claims {dtype} in the shape {str(shape)[:60]}, which its {held} bytes are not")
        return np.frombuffer(file.read(held), dtype=dtype).reshape(shape)


def _digest(text: bytes, vectors: Floats) -> bytes:
    digest = hashlib.sha256(text)
    digest.update(f"{vectors.dtype.str}{vectors.shape}".encode())
    digest.update(np.ascontiguousarray(vectors).tobytes())
    return digest.digest()


def export_items(items: Iterable[BankItem], path: Path, *, with_probation: bool = False) -> int:
    """Write the reflections of the active items, one a line, oldest first; returns how many.

    `with_probation` writes those on probation as well.
    """
    kept = ("active", "probation") if with_probation else ("active",)
    rows = [item.reflection.model_dump_json() for item in items if item.status in kept]
    with writing(path, "Give a file in a folder that you may write to."):
        write_atomic(path, "".join(f"{row}\n" for row in rows))
    return len(rows)


def import_items(bank: RubricBank, path: Path) -> tuple[tuple[BankItem, ...], tuple[tuple[int, Refusal], ...]]:
    """Write every reflection of a file to the bank, each through the gate, after the whole file has been read.

    Returns the written items, and line number and reason of the refused ones.

    Raises:
        FileFormatError: the file cannot be read, or a line is no reflection; the message names the line.
    """
    written: list[BankItem] = []
    refused: list[tuple[int, Refusal]] = []
    lines = enumerate(read_text(path, "a file of `rubricem bank export`").split("\n"), start=1)
    reflections = [(at, _parse_exchange(line, f"{path}, line {at}")) for at, line in lines if line.strip()]
    for number, reflection in reflections:
        outcome = bank.write(reflection)
        if isinstance(outcome, Refusal):
            refused.append((number, outcome))
        else:
            written.append(outcome)
    return tuple(written), tuple(refused)


def _parse_exchange(line: str, where: str) -> Reflection:
    with validating(f"{where} is not a reflection"):
        reflection = Reflection.model_validate_json(line)
    if reflection.query_key != query_key(reflection.question):
        raise FileFormatError(
            f"{where}: query_key is not the hash of the question; the two must belong together. Export the bank anew."
        )
    return reflection
