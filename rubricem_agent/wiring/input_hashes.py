"""Hashes of what decides the results of an evaluation: they say whether a run may resume."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pydantic.main import IncEx

from rubricem_agent.config.tools import parse_tools
from rubricem_agent.model_names import LOCAL
from rubricem_agent.policy.base import model_folder
from rubricem_agent.prompting import read_agent_prompts
from rubricem_agent.wiring.memory import open_existing_bank
from rubricem_agent.wiring.tools import open_index
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet, is_shipped, read_stage_set
from rubricem_records.files.file_hash import sha256

_WITHOUT_EFFECT: Mapping[str, IncEx | bool] = MappingProxyType(
    {
        **dict.fromkeys(("corpus", "embedder_path", "replay", "record", "cache", "budget", "timeout", "total"), True),
        "google_search": {"rates": True, "fee": True, "then": {"__all__": {"rates", "fee"}}},
        "snippet_search": {"rates": True, "fee": True, "then": {"__all__": {"rates", "fee"}}},
        "remote": {"concurrency", "timeout"},
        "mounted": {"__all__": {"environment", "token_variable", "timeout", "concurrency", "repeats_lost_calls"}},
    }
)
"""Settings that change no result: a run may be resumed with a larger budget or another rate."""


def beside_sha256(*paths: Path | None) -> str:
    """Hash of the files beside the data file, such as criteria; empty without any."""
    contents = [path.read_bytes() for path in paths if path is not None]
    return hashlib.sha256(b"".join(contents)).hexdigest() if contents else ""


def policy_sha256(policy: str) -> str:
    """Hash of the model that `local:PATH` names: its weights, tokenizer and settings; empty for any other policy."""
    folder = model_folder(Path(policy.removeprefix(f"{LOCAL}:")).expanduser())
    if not policy.startswith(f"{LOCAL}:") or not folder.is_dir():
        return ""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".safetensors", ".json", ".jinja", ".txt"))
    return hashlib.sha256("".join(f"{path.name} {sha256(path)}\n" for path in files).encode()).hexdigest()


def search_sha256(tools: str) -> str:
    """Hash of what decides the results of the tools that a command names; empty for the shipped corpus.

    It covers the settings, the corpus and the record.

    Raises:
        ConfigError: the settings, or a file that they name, cannot be read.
    """
    if tools in ("", "offline"):
        return ""
    config = parse_tools(tools)
    digest = hashlib.sha256(config.model_dump_json(exclude=dict(_WITHOUT_EFFECT)).encode())
    for key, path in (("corpus", config.corpus), ("replay", config.replay)):
        if path is not None:
            try:
                content = open_index(path).manifest.sha256.encode() if path.is_dir() else path.read_bytes()
                digest.update(f"\0{key}\0".encode() + content)
            except OSError as cause:
                where = f"the {key} of {tools} cannot be read: {path}"
                raise ConfigError(f"{where}: {cause.strerror}. Correct its path there.") from cause
    return digest.hexdigest()


def scaffold_sha256(source: str) -> str:
    """Hash of a stage set in a folder of the user's own; empty for a shipped one."""
    return "" if is_shipped(source) else hashlib.sha256(read_stage_set(source).model_dump_json().encode()).hexdigest()


def prompts_sha256(folder: Path | None, stage_set: StageSet = DEEP_RESEARCH) -> str:
    """Hash of the policy's prompts in a folder of the user's own; empty for ours.

    Raises:
        ConfigError: the folder is refused.
    """
    if folder is None:
        return ""
    texts = (f"{name}\0{file.text}" for name, file in read_agent_prompts(folder, stage_set).items())
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def bank_sha256(folder: Path | None) -> str:
    """Hash of the lessons that may be retrieved; empty without a bank."""
    if folder is None:
        return ""
    lessons = (item for item in open_existing_bank(folder, embeds=False).items() if item.is_active)
    texts = sorted(f"{item.id}\0{item.reflection.model_dump_json()}" for item in lessons)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
