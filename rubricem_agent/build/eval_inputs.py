"""The files of an evaluation: benchmark files here or from the hub, and what training has seen.

The models that an evaluation asks: named rightly, and priced where a budget is to hold them.

What an evaluation reads beside its data file, each as one hash: a run that is resumed must read the same.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pydantic.main import IncEx

from rubricem_agent.build.memory import open_existing_bank
from rubricem_agent.config import (
    EXPERT,
    GIVEN,
    LOCAL,
    SCRIPTED,
    EvalConfig,
    default_judges,
    load_tools_config,
    parse_judge,
    parse_policy,
)
from rubricem_agent.evals.base import BenchmarkFileError, Rules
from rubricem_agent.evals.manifest import judge_model, seen_keys
from rubricem_agent.evals.runner import RunPhase
from rubricem_env.domain.errors import ConfigError, MissingExtraError
from rubricem_env.llm.usage import price_of

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


class AskedModels(NamedTuple):
    """By the names that prices are listed under."""

    policy: str
    """Empty where answering costs nothing: a script, a file, a model in this process, or no answering at all."""
    judges: tuple[str, ...]

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Those whose calls no budget can count."""
        return tuple(model for model in self._all if price_of(model) is None)

    @property
    def priced(self) -> tuple[str, ...]:
        """Those whose calls a budget counts."""
        return tuple(model for model in self._all if price_of(model) is not None)

    @property
    def _all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(model for model in (self.policy, *self.judges) if model))


def asked_models(config: EvalConfig, rules: Rules) -> AskedModels:
    """The models that the settings name, in the stages that they name.

    Raises:
        ConfigError: there is no such policy or judge, or a budget would hold none of them.
    """
    policy, judges = _policy_model(config), judge_names(config, rules)
    asked = AskedModels(
        "" if config.stage is RunPhase.VERDICTS else policy, () if config.stage is RunPhase.ANSWERS else judges
    )
    if config.budget is not None and asked.unpriced and not asked.priced:
        raise ConfigError(
            f"--budget is {config.budget:g} dollars, and no price is known of {', '.join(asked.unpriced)}: it would "
            "never stop this run. Leave --budget out, and bound the run with --limit."
        )
    return asked


def judge_names(config: EvalConfig, rules: Rules) -> tuple[str, ...]:
    """Models, not addresses: the same model at another address is the same judge.

    Raises:
        ConfigError: a judge is no model, or is named twice.
    """
    for judge in config.judges:
        parse_judge(judge)
    if not rules.judge:
        return ()
    names = tuple(judge_model(judge) for judge in config.judges or default_judges(rules))
    if "rules" in names:
        raise ConfigError("benchmarks are judged by models. Use --judge gemini:MODEL or openai:MODEL@URL.")
    if len(set(names)) < len(names):
        raise ConfigError(f"a judge is named twice in {', '.join(names)}; agreement is between different judges.")
    return names


def _policy_model(config: EvalConfig) -> str:
    if config.policy == EXPERT or config.policy.startswith(GIVEN):
        return ""
    spec = parse_policy(config.policy)
    return "" if spec.backend in (SCRIPTED, LOCAL) else spec.model


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
