"""The files of an evaluation: benchmark files here or from the hub, and what training has seen."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.build.memory import open_existing_bank
from rubricem_agent.evals.contamination import seen_keys
from rubricem_agent.evals.errors import BenchmarkFileError
from rubricem_env.domain.errors import ConfigError, MissingExtraError

HUB = "hf:"
_PART = re.compile(r"[\w.-]+")
_NAMED = "A file on the hub is named hf:OWNER/NAME/FILE[@REVISION]."


class HubFile(NamedTuple):
    """A file of a data set on the hub."""

    repository: str
    file: str
    revision: str
    """Empty for the newest one."""


def data_path(data: str) -> Path | None:
    """The file that is meant, brought here first where it is on the hub. Its hash and rows are checked by the loader.

    Raises:
        ConfigError: the name on the hub is not OWNER/NAME/FILE[@REVISION].
        MissingExtraError: huggingface_hub is not installed.
        BenchmarkFileError: the file cannot be fetched.
    """
    if not data:
        return None
    return _fetch(data) if data.startswith(HUB) else Path(data).expanduser()


def read_seen(path: Path) -> Collection[str]:
    """Keys of the questions in a file of JSON lines, or in the folder of a rubric bank.

    Raises:
        FileFormatError: there is neither.
    """
    if path.is_dir():
        return frozenset(item.key for item in open_existing_bank(path, embeds=False).items())
    return seen_keys(path)


def parse_hub_file(data: str) -> HubFile:
    """The name of a file on the hub, taken apart.

    Raises:
        ConfigError: a part of it is missing.
    """
    name, _, revision = data.removeprefix(HUB).partition("@")
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    if not (_PART.fullmatch(owner) and _PART.fullmatch(repository) and file):
        raise ConfigError(f"--data is {data!r}; a part of the name is missing or has a blank or a sign in it. {_NAMED}")
    return HubFile(f"{owner}/{repository}", file, revision)


def _fetch(data: str) -> Path:
    repository, file, revision = parse_hub_file(data)
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ModuleNotFoundError as cause:
        raise MissingExtraError("huggingface_hub", "local", "a data set from the hub") from cause
    try:
        found = hf_hub_download(repository, file, repo_type="dataset", revision=revision or None)
    except HFValidationError as cause:
        raise ConfigError(f"--data is {data!r}; {repository!r} is no name of the hub. {_NAMED}") from cause
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as cause:
        raise BenchmarkFileError(
            f"{data} cannot be fetched ({type(cause).__name__}); without a network, give the path of a file with --data."
        ) from cause
    return Path(found)
