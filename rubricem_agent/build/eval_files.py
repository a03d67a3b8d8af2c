"""The files of an evaluation: benchmark files here or from the hub, and what training has seen."""

from collections.abc import Collection
from pathlib import Path

from rubricem_agent.build.memory import open_existing_bank
from rubricem_agent.evals.contamination import seen_keys
from rubricem_agent.evals.errors import BenchmarkFileError
from rubricem_env.domain.errors import ConfigError, MissingExtraError

HUB = "hf:"


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


def _fetch(data: str) -> Path:
    name, _, revision = data.removeprefix(HUB).partition("@")
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    if not (owner and repository and file):
        raise ConfigError(f"--data is {data!r}; a file on the hub is named hf:OWNER/NAME/FILE[@REVISION].")
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ModuleNotFoundError as cause:
        raise MissingExtraError("huggingface_hub", "local", "a data set from the hub") from cause
    try:
        found = hf_hub_download(f"{owner}/{repository}", file, repo_type="dataset", revision=revision or None)
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as cause:
        raise BenchmarkFileError(
            f"{data} cannot be fetched ({type(cause).__name__}); without a network, give the path of a file with --data."
        ) from cause
    return Path(found)
