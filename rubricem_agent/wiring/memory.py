"""Builds rubric banks and embedders from their settings, and what `rubricem ask` needs: policy, tools and lessons."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.config.bank import HASHING, BankConfig
from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.config.tools import parse_tools
from rubricem_agent.memory.bank import Retrieval, RubricBank
from rubricem_agent.memory.gate import Refusal, WriteGate
from rubricem_agent.memory.inject import Block, CountTokens, Injector
from rubricem_agent.memory.snapshot import open_snapshot
from rubricem_agent.memory.store import ItemStore, MemoryStore
from rubricem_agent.policy.base import Policy
from rubricem_agent.prompting import SHIPPED_PROMPTS, AgentPrompts, stage_prompts
from rubricem_agent.reflection.candidates import ReflectionSettings
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import RolloutContext
from rubricem_agent.wiring.models import POLICY_KEY, build_embedder, build_policy, naming, requires_extra
from rubricem_agent.wiring.probe import model_probes, require_answers, search_probes
from rubricem_agent.wiring.tools import TOKEN_VARIABLE, open_tools
from rubricem_env.domain.errors import BoundaryError, FileFormatError
from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.llm.hosts import url_host
from rubricem_env.llm.usage import Meter
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.parsed import ParsedTrajectory
from rubricem_env.tools.spec import ToolSpec
from rubricem_records.bank.bank_header import read_header

SNAPSHOT_SUFFIX = ".npz"


def build_bank(
    config: BankConfig, scaffold: Scaffold = DEFAULT, *, evaluation_keys: Collection[str] = frozenset()
) -> RubricBank:
    """Open the bank of the settings, or create it.

    Raises:
        ConfigError: there is no such embedder, or its weights are not on this machine.
        MissingExtraError: a package is not installed.
        FileFormatError: the folder holds a bank of another embedder, or of a newer release.
        BankStoreError: the store cannot be opened.
    """
    embedder = build_embedder(config.embedder, config.embedder_path)
    store: ItemStore = MemoryStore(embedder=embedder.name, dimension=embedder.dimension)
    if config.folder is not None:
        store = _open_folder(config.folder, embedder.name, embedder.dimension)
    return RubricBank(
        store,
        embedder,
        gate=WriteGate(config.gate, evaluation_keys=evaluation_keys, scaffold=scaffold),
        settings=config.retrieval,
        probation=config.probation,
        is_moderated=config.is_moderated,
    )


def open_existing_bank(
    folder: Path, *, embeds: bool, embedder_path: Path | None = None, scaffold: Scaffold = DEFAULT
) -> RubricBank:
    """Open the bank of a folder with its own embedder, or without an embedder where nothing will be embedded.

    A file .npz is the bank of a run's checkpoint: it is read into memory, and what is written to it stays there.

    Raises:
        FileFormatError: there is no bank, or none that this release can read.
        ConfigError: the weights of its embedder are not on this machine.
        MissingExtraError: a package is not installed.
        BankStoreError: the store cannot be opened.
    """
    if folder.suffix == SNAPSHOT_SUFFIX:
        return open_snapshot(folder, partial(build_embedder, path=embedder_path) if embeds else None)
    header = read_header(folder)
    if header is None:
        raise FileFormatError(
            f"there is no rubric bank in {folder}. Give with --bank the folder of one, or the bank.npz of a "
            "checkpoint; or make one with `rubricem bank import FILE --bank FOLDER`."
        )
    store = _open_folder(folder, header.embedder, header.dimension)
    embedder = build_embedder(header.embedder, embedder_path) if embeds else None
    return RubricBank(store, embedder, gate=WriteGate(scaffold=scaffold))


def build_injector(
    config: BankConfig,
    count_tokens: CountTokens,
    *,
    prompts: AgentPrompts = SHIPPED_PROMPTS,
    scaffold: Scaffold = DEFAULT,
) -> Injector:
    """The injector of lessons before a question; it counts with the policy's own tokenizer."""
    return Injector(count_tokens=count_tokens, budget=config.reference_tokens, prompts=prompts, scaffold=scaffold)


def _open_folder(folder: Path, embedder: str, dimension: int) -> ItemStore:
    with requires_extra("bank", "a rubric bank on disk"):
        from rubricem_agent.memory.chroma_store import ChromaStore
    return ChromaStore.open(folder, embedder=embedder, dimension=dimension)


class LessonMemory:
    """The lessons of `rubricem ask`: retrieved from a bank before an attempt, and written to it after an attempt."""

    def __init__(self, bank: RubricBank, injector: Injector, *, reflector: Reflector) -> None:
        self.bank = bank
        self._injector = injector
        self._reflector = reflector

    @classmethod
    def open(
        cls, folder: Path | None, policy: Policy, *, creates: bool, stage_set: StageSet = DEEP_RESEARCH
    ) -> "LessonMemory":
        """Open the bank of a folder; without a folder the bank is in memory. A missing one is made if `creates`."""
        scaffold, prompts = stage_set.scaffold, stage_prompts(stage_set)
        config = BankConfig(folder=folder) if folder else BankConfig(embedder=HASHING)
        is_there = folder is not None and (folder.suffix == SNAPSHOT_SUFFIX or read_header(folder) is not None)
        if folder is not None and (is_there or not creates):
            bank = open_existing_bank(folder, embeds=True, scaffold=scaffold)
        else:
            bank = build_bank(config, scaffold)
        # What is learnt from an attempt here is shown to the next attempt at the same question.
        settings = ReflectionSettings(wording="within")
        reflector = Reflector(policy, RulesJudge(), bank, settings=settings, prompts=prompts)
        injector = build_injector(config, policy.count_tokens, prompts=prompts, scaffold=scaffold)
        return cls(bank, injector, reflector=reflector)

    async def retrieve(self, question: str, mode: Retrieval) -> Block:
        """The lessons to show before a question."""
        hits = await asyncio.to_thread(self.bank.retrieve, question, mode)
        return self._injector.render(hits, mode)

    async def learn(self, parsed: ParsedTrajectory) -> str:
        """Reflect on an attempt and store the lesson, unjudged: there is no judge at inference. Returns a sentence."""
        try:
            outcome = await self._reflector.reflect_unjudged(parsed)
        except BoundaryError as failure:
            return f"No lesson was stored: {failure}"
        if isinstance(outcome, Refusal):
            return f"No lesson was stored: {outcome.sentence}"
        return f"The lesson:\n{outcome.reflection.takeaways.strip()}"


class OpenedAsk(NamedTuple):
    """What `rubricem ask` plays with."""

    context: RolloutContext
    meter: Meter
    lessons: LessonMemory | None
    specs: tuple[ToolSpec, ...]
    """Of the tools; empty for a replay."""


@asynccontextmanager
async def open_ask(
    config: PolicyConfig,
    environ: Mapping[str, str],
    *,
    tools: str = "offline",
    tables: Path | None = None,
    bank: Path | None = None,
    reads_lessons: bool = False,
    writes_lessons: bool = False,
    probe: bool = True,
    limits: EpisodeLimits | None = None,
    context: ContextLimits | None = None,
    stage_set: StageSet = DEEP_RESEARCH,
) -> AsyncIterator[OpenedAsk]:
    """Connect the policy, its tools and its lessons; they are closed on the way out.

    Args:
        config: the policy.
        environ: the variables that hold keys.
        tools: offline, web, the path of a TOML file of settings, or the URL of a tool server.
        tables: a folder of CSV and Parquet files, or a SQLite file, which run_sql reads.
        bank: the folder of a rubric bank.
        reads_lessons: show lessons before the first attempt.
        writes_lessons: store a lesson after each attempt; a missing bank is created.
        probe: ask the policy and the search engine for one token first.
        limits: of each episode.
        context: how much of an episode the policy reads.
        stage_set: the stages of the attempts that lessons are learnt from.

    Raises:
        UsageError: something is missing or misspelt.
        ModelError: the policy or the search engine does not answer.
    """
    settings = parse_tools(tools)
    if tables is not None:
        settings = settings.model_copy(update={"tables": tables})
    environ = naming(environ, POLICY_KEY, config.policy)
    policy, meter = build_policy(config, environ)
    async with aclosing(policy):
        lessons = None
        if reads_lessons or writes_lessons:
            lessons = LessonMemory.open(bank, policy, creates=writes_lessons, stage_set=stage_set)
        named = naming(environ, TOKEN_VARIABLE, tools) if url_host(tools) else environ
        async with open_tools(settings, named) as opened:
            if probe:
                await require_answers([*model_probes(environ, policy=config.policy), *search_probes(settings, environ)])
            played = RolloutContext(
                policy, opened.toolbox, limits or EpisodeLimits(), config.sampling, context or ContextLimits()
            )
            yield OpenedAsk(played, meter, lessons, opened.specs)
