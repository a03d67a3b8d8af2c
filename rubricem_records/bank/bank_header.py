"""The header of a rubric bank on disk, which must be known before anything else in it is read."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.inputs import read_text, validating
from rubricem_records.files.atomic_files import write_atomic

BANK_VERSION = 1

HEADER_FILE = "bank.json"


class BankHeader(Frozen):
    """What must be known before anything else in a bank is read."""

    version: Annotated[int, Field(ge=1)]
    embedder: Text
    dimension: Annotated[int, Field(ge=1)]
    collection: Text = "items-1"


def read_header(folder: Path) -> BankHeader | None:
    """The header of the bank in a folder; None where there is no bank.

    Raises:
        FileFormatError: it cannot be read, or a newer release wrote it.
    """
    file = folder / HEADER_FILE
    if not file.exists():
        return None
    text = read_text(file, "the folder of a rubric bank")
    with validating(f"{file} is not the header of a rubric bank"):
        version = TypeAdapter(dict[str, object]).validate_json(text).get("version")
        if isinstance(version, int) and version > BANK_VERSION:
            raise FileFormatError(
                f"the bank {folder} was written by a newer release (version {version}; this one reads up to "
                f"{BANK_VERSION}). Upgrade rubricem to use it."
            )
        return BankHeader.model_validate_json(text)


def write_header(folder: Path, header: BankHeader) -> None:
    write_atomic(folder / HEADER_FILE, header.model_dump_json())
