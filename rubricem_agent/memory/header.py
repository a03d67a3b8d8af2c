"""The first file of a bank on disk: its version, its embedder, and which collection holds its items."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rubricem_agent.memory.atomic_file import write_atomic
from rubricem_agent.memory.errors import BankFormatError
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.trajectory_json import first_problem

BANK_VERSION = 1
HEADER_FILE = "bank.json"


class BankHeader(Frozen):
    """What must be known before anything else of a bank is touched."""

    version: Annotated[int, Field(ge=1)] = BANK_VERSION
    embedder: Text
    dimension: Annotated[int, Field(ge=1)]
    collection: Text = "items-1"


class _Version(BaseModel):
    """The one field that every version has."""

    model_config = ConfigDict(extra="ignore", strict=True)

    version: int


def read_header(folder: Path) -> BankHeader | None:
    """The header of the bank in a folder; None where there is no bank.

    Raises:
        BankFormatError: it cannot be read, or a newer release wrote it.
    """
    file = folder / HEADER_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as cause:
        raise BankFormatError(f"cannot read {file}: {cause}. Give the folder of a rubric bank.") from cause
    try:
        version = _Version.model_validate_json(text).version
        if version > BANK_VERSION:
            raise BankFormatError(
                f"the bank {folder} was written by a newer release (version {version}; this one reads up to "
                f"{BANK_VERSION}). Upgrade rubricem to use it."
            )
        return BankHeader.model_validate_json(text)
    except ValidationError as cause:
        raise BankFormatError(f"{file} is not the header of a rubric bank: {first_problem(cause)}") from cause


def write_header(folder: Path, header: BankHeader) -> None:
    write_atomic(folder / HEADER_FILE, lambda file: file.write(header.model_dump_json().encode()))
