"""Reads what a person has written, with one sentence for each failure: files, values, names, KEY=VALUE.

`package_text` reads what is part of the package.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError


def read_text(path: Path, what: str) -> str:
    """The text of a file; raises FileFormatError, which asks for the path of `what`, where it cannot be read."""
    refuse_larger_than_memory(path)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise FileFormatError(f"cannot read {path}: {cause}. Give the path of {what}.") from cause


def most_read_whole() -> int:
    """A quarter of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


def refuse_larger_than_memory(path: Path) -> None:
    """Raise FileFormatError where a file that is to be read whole takes more than a quarter of the machine's memory.

    A file of holes has any size and takes no room on a disk.
    """
    most = most_read_whole()
    size = path.stat().st_size if path.is_file() else 0
    if size > most:
        raise FileFormatError(
            f"{path} has {size:,} bytes; a file that is read whole may have {most:,} on this machine, a quarter of its "
            "memory. Split it, or use a larger machine."
        )


def read_prompt_texts(folder: Path, names: Sequence[str], *, shipped: str) -> dict[str, str]:
    """The texts of the prompts NAME.md in a folder of a user's own; `shipped` is the folder to begin from.

    Raises:
        ConfigError: there is no such folder, it lacks a prompt, or a prompt cannot be read or is empty.
    """
    if not folder.expanduser().is_dir():
        raise ConfigError(f"there is no folder of prompts {folder}. Begin from a copy of {shipped}, or leave it out.")
    files = {name: folder.expanduser() / f"{name}.md" for name in names}
    absent = [file.name for file in files.values() if not file.is_file()]
    if absent:
        raise ConfigError(
            f"the folder of prompts {folder} has no {', '.join(absent)}; it needs one of each of ours. Copy what is "
            f"missing from {shipped}."
        )
    texts = {}
    for name, file in files.items():
        try:
            texts[name] = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as cause:
            raise ConfigError(f"cannot read the prompt {file}: {cause}. Write it anew, in UTF-8.") from cause
        if not texts[name].strip():
            raise ConfigError(f"the prompt {file} is empty; begin from the one in {shipped}.")
    return texts


def refuse_placeholders(where: str, found: Collection[str], wanted: Collection[str], *, sign: str) -> None:
    """Refuse a prompt of a user's own that has other placeholders than ours; `sign` writes one, as "${}" does.

    Raises:
        ConfigError: it lacks one, or has one that nothing fills.
    """
    lacking = [sign.format(name) for name in sorted({*wanted} - {*found})]
    unknown = [sign.format(name) for name in sorted({*found} - {*wanted})]
    if lacking:
        raise ConfigError(f"{where} lacks the placeholder {', '.join(lacking)}; put it where its value belongs.")
    if unknown:
        known = ", ".join(sign.format(name) for name in sorted(wanted)) or "none"
        raise ConfigError(f"{where} has the unknown placeholder {', '.join(unknown)}; those of ours are: {known}.")


def package_text(package: str, *path: str) -> str:
    """The text of a file that stands in a package, such as a table beside the module that reads it."""
    return resources.files(package).joinpath(*path).read_text("utf-8")


def refuse_other_than_file(path: Path, what: str) -> None:
    """Raise FileFormatError where a folder, a pipe or a device stands in a file's place: reading it might never end."""
    if path.exists() and not path.is_file():
        raise FileFormatError(f"{path} is a folder, a pipe or a device, and no {what}. Restore the file, or remove it.")


def read_lines(path: Path, what: str) -> list[tuple[str, str]]:
    """The lines of a file that are not blank, each after its place, as in "rows.jsonl, line 3".

    Raises as `read_text`.
    """
    # Not splitlines: a line separator such as U+2028 may stand inside a JSON string.
    lines = enumerate(read_text(path, what).split("\n"), start=1)
    return [(f"{path}, line {number}", line) for number, line in lines if line.strip()]


@contextmanager
def validating(what: str, way_out: str = "", *, error: type[UsageError] = FileFormatError) -> Iterator[None]:
    """Turn pydantic's refusal of a value into one sentence: what it is not, the first problem, the way out.

    with validating(f"{where} is not a document", "Correct the line."):
        document = Document.model_validate_json(line)
    """
    try:
        yield
    except ValidationError as cause:
        raise error(f"{what}: {first_problem(cause)} {way_out}".rstrip()) from cause
    except UnicodeEncodeError as cause:
        # A validator's message quoted a lone surrogate, which pydantic cannot carry.
        broken = cause.object[cause.start : cause.end]
        raise error(f"{what}: it holds the broken character {broken!r}. {way_out}".rstrip()) from cause


def first_problem(error: ValidationError) -> str:
    """The first problem that pydantic found, as one sentence with its location and value."""
    problem = error.errors(include_url=False, include_context=False)[0]
    location = ".".join(str(part) for part in problem["loc"]) or "the object"
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    return f"at {_shortened(location)}: {message[:1].lower()}{message[1:]} (got {_shortened(repr(problem['input']))})."


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def nearest_name(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name most similar to `name`; None if none reaches `cutoff` (0 to 1, the ratio of difflib)."""
    return next(iter(get_close_matches(name, tuple(known), n=1, cutoff=cutoff)), None)


def suggest_name(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The end of a message about an unknown key: the nearest known name, or all of them."""
    names = tuple(known)
    near = nearest_name(name, names, cutoff=cutoff)
    return f"did you mean {near!r}?" if near else f"the keys are {', '.join(names)}."


def parse_assignment(text: str, *, example: str) -> tuple[str, str]:
    """The key and the value of a KEY=VALUE argument; whitespace around the key is dropped.

    Raises:
        ConfigError: there is no `=`, or no key before it.
    """
    key, sign, value = text.partition("=")
    if not (sign and key.strip()):
        raise ConfigError(f"{text!r} is not a setting; write KEY=VALUE, such as {example}.")
    return key.strip(), value
