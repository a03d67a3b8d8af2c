"""Banks as JSONL files: reflections out, and in again through the gate."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from rubricem_agent.memory.atomic_file import write_atomic
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.errors import BankFormatError
from rubricem_agent.memory.gate import Refusal
from rubricem_agent.memory.item import BankItem
from rubricem_env.domain.query import query_key
from rubricem_env.domain.reflection import Reflection
from rubricem_env.domain.trajectory_json import first_problem


class Imported(NamedTuple):
    """What became of the lines of a file."""

    written: tuple[BankItem, ...]
    refused: tuple[tuple[int, Refusal], ...]
    """Line number and reason."""


def export_items(items: Iterable[BankItem], path: Path) -> int:
    """Write the reflections of the active items, one a line, oldest first; returns how many."""
    rows = [item.reflection.model_dump_json() for item in items if item.is_retrievable]
    try:
        write_atomic(path, lambda file: file.write("".join(f"{row}\n" for row in rows).encode()))
    except OSError as cause:
        raise BankFormatError(
            f"cannot write {path}: {cause}. Give a file in a folder that you may write to."
        ) from cause
    return len(rows)


def import_items(bank: RubricBank, path: Path) -> Imported:
    """Write every reflection of a file to the bank, each through the gate. The file is read whole before any is written.

    Raises:
        BankFormatError: the file cannot be read, or a line is no reflection; the message names the line.
    """
    written: list[BankItem] = []
    refused: list[tuple[int, Refusal]] = []
    for number, reflection in read_reflections(path):
        outcome = bank.write(reflection)
        if isinstance(outcome, Refusal):
            refused.append((number, outcome))
        else:
            written.append(outcome)
    return Imported(tuple(written), tuple(refused))


def read_reflections(path: Path) -> list[tuple[int, Reflection]]:
    """The reflections of a JSONL file with their line numbers; blank lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as cause:
        raise BankFormatError(f"cannot read {path}: {cause}. Give a file of `rubricem bank export`.") from cause
    return [(number, _parse(line, path, number)) for number, line in enumerate(lines, start=1) if line.strip()]


def _parse(line: str, path: Path, number: int) -> Reflection:
    where = f"{path}, line {number}"
    try:
        reflection = Reflection.model_validate_json(line)
    except ValidationError as cause:
        raise BankFormatError(f"{where} is not a reflection: {first_problem(cause)}") from cause
    if reflection.query_key != query_key(reflection.question):
        raise BankFormatError(
            f"{where}: query_key is not the hash of the question; the two must belong together. Export the bank anew."
        )
    return reflection
