"""Files of data sets on the Hugging Face hub: `hf:OWNER/NAME/FILE[@REVISION]`."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.wiring.models import requires_extra
from rubricem_env.domain.errors import ConfigError, FileFormatError

HUB = "hf:"


_READABLE = (".jsonl", ".json", ".parquet")


_PART = re.compile(r"[\w.-]+")


class HubFile(NamedTuple):
    """A file of a data set."""

    repository: str
    file: str
    revision: str
    """Empty for the newest."""


def parse_hub_file(data: str, *, needs_file: bool = True) -> HubFile:
    """The parts of `hf:OWNER/NAME/FILE[@REVISION]`; raises ConfigError on a missing part."""
    name, _, revision = data.removeprefix(HUB).partition("@")
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    if not (_PART.fullmatch(owner) and _PART.fullmatch(repository) and (file or not needs_file)):
        form = "hf:OWNER/NAME/FILE[@REVISION]" if needs_file else "hf:OWNER/NAME[/FILE][@REVISION]"
        raise ConfigError(f"the data set {data!r} lacks a part, or has a forbidden character; one is named {form}.")
    return HubFile(f"{owner}/{repository}", file, revision)


def fetch_hub_file(data: str, *, needs_file: bool = True) -> Path:
    """A file of a data set on the hub, downloaded unless it is in the cache. Its content is not checked.

    Raises:
        ConfigError: the name is malformed, or names none or several of the repository's files.
        MissingExtraError: huggingface_hub is not installed.
        FileFormatError: the file cannot be fetched.
    """
    repository, file, revision = parse_hub_file(data, needs_file=needs_file)
    with requires_extra("local", "a data set from the hub"):
        from httpx import HTTPError
        from huggingface_hub import HfApi, hf_hub_download
        from huggingface_hub.errors import HFValidationError
    at = revision or None
    try:
        file = file or choose_file(HfApi().list_repo_files(repository, repo_type="dataset", revision=at), data)
        return Path(hf_hub_download(repository, file, repo_type="dataset", revision=at))
    except HFValidationError as cause:
        raise ConfigError(f"{data!r} is not a valid name on the hub: {str(cause).splitlines()[0]}") from cause
    except (HTTPError, OSError) as cause:
        raise FileFormatError(
            f"{data} cannot be fetched ({type(cause).__name__}). Without a network, fetch the file elsewhere and give "
            "its path."
        ) from cause


def fetched(given: str) -> Path:
    """The path of a file that is here, or is fetched from the hub."""
    return fetch_hub_file(given) if given.startswith(HUB) else Path(given).expanduser()


def choose_file(files: Iterable[str], source: str) -> str:
    """The only data file of a repository, or the only one for training; raises ConfigError without such a file."""
    readable = sorted(file for file in files if file.endswith(_READABLE))
    training = [file for file in readable if "train" in file.casefold()]
    for candidates in (readable, training):
        if len(candidates) == 1:
            return candidates[0]
    held = f"holds {', '.join(readable)}" if readable else f"holds no file that ends in {', '.join(_READABLE)}"
    raise ConfigError(f"{source} {held}; name one as hf:OWNER/NAME/FILE[@REVISION].")
