"""What an evaluation reads beside its data file, each as one hash: a run that is resumed must read the same."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic.main import IncEx

from rubricem_agent.build.memory import open_existing_bank
from rubricem_agent.config.tools import load_tools_config
from rubricem_env.domain.errors import ConfigError

_NO_FINDING: Mapping[str, IncEx | bool] = MappingProxyType(
    {
        **dict.fromkeys(("corpus", "replay", "record", "cache", "budget", "timeout", "total"), True),
        "google_search": {"rates", "fee"},
        "snippet_search": {"rates"},
        "remote": {"concurrency", "timeout"},
        "mounted": {"__all__": {"environment", "token_variable", "timeout", "concurrency", "repeats_lost_calls"}},
    }
)
"""Settings that change no result: a run may be resumed with a larger budget or at another rate."""


def beside_sha256(*paths: Path | None) -> str:
    """Of the files beside the data file, such as criteria; empty where there are none."""
    contents = [path.read_bytes() for path in paths if path is not None]
    return hashlib.sha256(b"".join(contents)).hexdigest() if contents else ""


def search_sha256(settings: Path | None) -> str:
    """Of what decides what the tools find: settings, corpus and record; empty without settings, for the shipped corpus.

    Raises:
        ConfigError: the settings, or a file that they name, cannot be read.
    """
    if settings is None:
        return ""
    config = load_tools_config(settings)
    digest = hashlib.sha256(config.model_dump_json(exclude=dict(_NO_FINDING)).encode())
    for key, path in (("corpus", config.corpus), ("replay", config.replay)):
        if path is not None:
            digest.update(f"\0{key}\0".encode() + _content(path, f"{key} of {settings}"))
    return digest.hexdigest()


def bank_sha256(folder: Path | None) -> str:
    """Of the lessons that may be retrieved; empty without a bank.

    Raises:
        UsageError: there is no bank in the folder, or it cannot be opened.
    """
    if folder is None:
        return ""
    lessons = (item for item in open_existing_bank(folder, embeds=False).items() if item.is_retrievable)
    said = sorted(f"{item.id}\0{item.reflection.model_dump_json()}" for item in lessons)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _content(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as cause:
        raise ConfigError(f"the {what} cannot be read: {path}: {cause.strerror}. Correct its path there.") from cause
