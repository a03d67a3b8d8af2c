"""A local run: its components, made from its settings."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import numpy as np

from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.data.question_files import read_training_set
from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.learn.deferred import Deferred, Ticket
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.local import LocalPolicy, load_tokenizer
from rubricem_agent.prompting import AgentPrompt, AgentPrompts, agent_prompt, read_agent_prompts, table_specs
from rubricem_agent.reflection.reflector import JudgedAttempt, ReflectionOutcome, Reflector
from rubricem_agent.wiring.memory import build_bank, build_injector
from rubricem_agent.wiring.models import BuiltJudge, build_judge
from rubricem_agent.wiring.probe import model_probes, require_answers, search_probes
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.trust.audit import HeldOutAudit
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.almanac import Almanac, load_questions, shipped_questions_path, to_jsonl
from rubricem_env.world.deep import deep_almanac
from rubricem_env.world.judge import AlmanacJudge, WorldQuestion, true_rubrics
from rubricem_env.world.offline import query_of, shipped_toolbox
from rubricem_env.world.tables.attempts import table_query
from rubricem_env.world.tables.table_world import TableWorld
from rubricem_records.rollouts.run_record import RECORD_FOLDER
from rubricem_records.rollouts.run_recorder import RunRecorder

from ..settings import prompt_hashes, with_run_seed
from .learner import Learner
from .policy import load_trained
from .settings import LocalConfig, with_system

_RIVERS = 60
"""Rivers of the world of tables: enough that no question is asked often."""
Pending = dict[Ticket, Sequence[JudgedAttempt]]
"""Judged groups that wait for their reflection."""


class Run(NamedTuple):
    """The components of a run."""

    config: LocalConfig
    learner: Learner
    policy: LocalPolicy
    prompt: AgentPrompt
    prompt_hashes: dict[str, str]
    """Of the policy's prompts and the judge's, by the name of the file; a checkpoint records them."""
    toolbox: Toolbox
    judge: StepJudge
    bank: RubricBank
    injector: Injector
    curriculum: Curriculum
    deferred: Deferred[ReflectionOutcome]
    pending: Pending
    train: dict[str, Query]
    """Training questions by query key."""
    held_out: tuple[Query, ...]
    """The questions of the evaluations, in their order."""
    truth: dict[str, WorldQuestion]
    """The truth about both by query key; empty for own questions."""
    recorder: RunRecorder | None
    """None where nothing is recorded for the viewer."""
    audit: HeldOutAudit | None
    """None where no held-out judge scores rollouts."""


@asynccontextmanager
async def open_services(config: LocalConfig) -> AsyncIterator[tuple[Toolbox, BuiltJudge | None]]:
    """Connect tools and judges, and ask each for one token; they are closed on the way out. None: the almanac's judge.

    Raises:
        ConfigError: a key is missing, or a server of the settings cannot be reached.
        MissingExtraError: a package is not installed.
        ModelError: a judge or the search engine does not answer.
    """
    async with AsyncExitStack() as stack:
        judge = None
        if not config.has_almanac_judge:
            judge = build_judge(with_run_seed(config.judge, config.seed), stage_set=config.stage_set)
            stack.push_async_callback(judge.aclose)
        tools = config.tools
        if config.data is None and config.world == "tables":
            config.out.mkdir(parents=True, exist_ok=True)
            tools_file = config.out / "tables.sqlite"
            tables_to_train_on().write_sqlite(tools_file)
            tools = ToolsConfig(backend="none", tables=tools_file)
        if config.data is None and config.world == "deep":
            config.out.mkdir(parents=True, exist_ok=True)
            corpus = config.out / "deep.jsonl"
            corpus.write_bytes(to_jsonl(deep_to_train_on().documents))
            tools = ToolsConfig(corpus=corpus)
        opened = await stack.enter_async_context(open_tools(tools, os.environ))
        if config.probe:
            names = (config.judge.judge, *config.judge.also) if judge else ()
            await require_answers([*model_probes(os.environ, judges=names), *search_probes(tools, os.environ)])
        yield opened.toolbox, judge


def read_run_questions(config: LocalConfig) -> tuple[dict[str, Query], tuple[Query, ...], dict[str, WorldQuestion]]:
    """Training questions by key, held-out questions, and the truth about both, which own questions have not.

    Raises:
        ConfigError: a held-out question is trained on.
        FileFormatError: a file cannot be read.
    """
    if config.data is None:
        asked = _world_questions(config)
        train = {query.key: query for query, question in asked if question.split == "train"}
        held_out = tuple(query for query, question in asked if question.split == config.held_out)
        limited = spread_over(held_out, config.held_out_limit)
        return train, limited, {query.key: question for query, question in asked}
    last = config.stage_set.scaffold.last
    train = {query.key: query for query in read_training_set(config.data, last)}
    held_out = read_training_set(config.held_out_data, last) if config.held_out_data else ()
    shared = [query.question for query in held_out if query.key in train]
    if shared:
        raise ConfigError(
            f"{len(shared)} questions of {config.held_out_data} are in {config.data} too, such as {shared[0][:80]!r}; "
            "a policy is evaluated on questions that it was not trained on. Remove them from one of the two."
        )
    return train, spread_over(held_out, config.held_out_limit), {}


def _world_questions(config: LocalConfig) -> list[tuple[Query, WorldQuestion]]:
    """The questions of the run's world, each as a policy is asked and with its truth."""
    if config.world == "tables":
        return [(table_query(question), question) for question in tables_to_train_on().questions]
    almanac = deep_to_train_on().questions if config.world == "deep" else load_questions(shipped_questions_path())
    return [(query_of(question), question) for question in almanac]


def deep_to_train_on() -> Almanac:
    """The deeper almanac of every run in it."""
    return deep_almanac(0)


def tables_to_train_on() -> TableWorld:
    """The tables of every run in their world."""
    return TableWorld.from_seed(0, rivers=_RIVERS)


def spread_over(queries: tuple[Query, ...], limit: int | None) -> tuple[Query, ...]:
    """At most `limit` of the questions, at even distances, in their order."""
    if limit is None or limit >= len(queries):
        return queries
    return tuple(queries[index * len(queries) // limit] for index in range(limit))


def make_audit(config: LocalConfig, questions: Mapping[str, WorldQuestion]) -> HeldOutAudit:
    """The held-out judge of a run; its own rubric set of a question are the true criteria."""
    settings = config.held_out_judge
    seed = config.seed if settings.seed is None else settings.seed
    judge = AlmanacJudge(questions.values(), knobs=settings.knobs, seed=seed)
    own = questions.items() if settings.rubrics == "held_out" else ()
    rubrics = {key: list(true_rubrics(question)) for key, question in own}
    return HeldOutAudit(judge, settings=settings, rubrics=rubrics, seed=seed)


def _refuse_long_episodes(config: LocalConfig, *, opening_tokens: int, positions: int) -> None:
    """Raise ConfigError where an episode after the longest opening does not fit into the policy's cache.

    `positions` is what the policy can read.
    """
    if opening_tokens >= positions:
        raise ConfigError(
            f"the longest question's prompt has {opening_tokens} tokens, and the policy reads {positions}: it could "
            "not write a word. Take a policy with a longer context, or shorter prompts."
        )
    opening_tokens += config.bank.reference_tokens if config.meta_policy else 0
    config.context.check_opening(opening_tokens)
    length = opening_tokens + config.limits.max_tokens
    room = config.reflection.total_tokens
    fold_at = config.context.fold_at
    if fold_at is not None and fold_at + config.max_turn_tokens < length:
        length = fold_at + config.max_turn_tokens
        if length > room:
            raise ConfigError(
                f"a window may have {length} tokens (context.fold_at and a turn of max_turn_tokens), and the policy's "
                f"cache holds reflection.total_tokens {room}. Raise the last, or lower the others."
            )
    if length > room:
        raise ConfigError(
            f"an episode may have {length} tokens (the longest question's prompt, bank.reference_tokens, "
            f"limits.max_tokens), and the policy's cache holds reflection.total_tokens {room}. Raise the last, or "
            "lower the others."
        )


def _make_learner(config: LocalConfig, stages: Sequence[str]) -> Learner:
    return Learner(
        load_trained(config),
        learning_rate=config.learning_rate,
        loss=config.loss,
        max_grad_norm=config.max_grad_norm,
        micro_batch_tokens=config.micro_batch_tokens,
        ahead=config.ahead > 0,
        threads=config.threads,
        stages=stages,
    )


def _make_prompt(config: LocalConfig, toolbox: Toolbox, prompts: AgentPrompts) -> AgentPrompt:
    return agent_prompt(
        toolbox.names,
        style=config.style,
        system=config.system or "",
        prompts=prompts,
        specs=table_specs(toolbox),
        scaffold=config.stage_set.scaffold,
    )


def make_run(config: LocalConfig, toolbox: Toolbox | None = None, judge: BuiltJudge | None = None) -> Run:
    """Load the policy and initialise everything else; tools or a judge that are None are the almanac's own.

    Open seeds in the settings become the run's seed, so that the settings determine every draw.

    Raises:
        ConfigError: the policy's folder holds no policy, a folder of prompts is refused, or the settings do not fit the
            questions.
        FileFormatError: the questions cannot be read.
    """
    config = with_system(with_run_seed(config, config.seed))
    train, held_out, truth = read_run_questions(config)
    toolbox = toolbox or shipped_toolbox()
    stage_set = config.stage_set
    scaffold = stage_set.scaffold
    prompts = read_agent_prompts(config.prompts, stage_set)
    prompt = _make_prompt(config, toolbox, prompts)
    learner = _make_learner(config, scaffold.names)
    tokenizer = load_tokenizer(config.policy)
    room = config.reflection.total_tokens
    policy = LocalPolicy(
        learner.sampler,
        tokenizer,
        rows=config.rows,
        max_length=room,
        threads=config.threads,
        draft_tokens=config.draft_tokens,
    )
    own = AlmanacJudge(truth.values(), knobs=config.knobs, seed=config.seed)
    bank = build_bank(config.bank, scaffold)
    step_judge = StepJudge(
        judge.judge if judge else own, RubricBuffer(), settings=config.judge.settings, stage_set=stage_set
    )
    reflector = Reflector(
        policy,
        judge.reflection_judge if judge else own,
        bank,
        settings=config.reflection,
        version=lambda: learner.synced,
        prompts=prompts,
    )
    pending: Pending = {}

    async def reflect(ticket: Ticket) -> ReflectionOutcome:
        return await reflector.reflect(pending.pop(ticket), step=ticket.step)

    opening = prompt.opening(max((*train.values(), *held_out), key=lambda query: len(query.question)))
    opening_tokens = len(tokenizer.encode_opening(opening))
    _refuse_long_episodes(config, opening_tokens=opening_tokens, positions=policy.max_length)
    return Run(
        config=config,
        learner=learner,
        policy=policy,
        prompt=prompt,
        prompt_hashes=prompt_hashes(config, config.judge),
        toolbox=toolbox,
        judge=step_judge,
        bank=bank,
        injector=build_injector(config.bank, policy.count_tokens, prompts=prompts, scaffold=scaffold),
        curriculum=Curriculum(
            list(train),
            batch_size=config.questions_per_step,
            window=config.window,
            repeats=config.repeats,
            rng=np.random.default_rng(config.seed),
        ),
        deferred=Deferred(reflect, ReflectionOutcome),
        pending=pending,
        train=train,
        held_out=held_out,
        truth=truth,
        recorder=(
            RunRecorder(config.out / RECORD_FOLDER, sampled=config.record, stages=scaffold.names)
            if config.record
            else None
        ),
        audit=make_audit(config, {key: truth[key] for key in train}) if config.held_out_judge.every else None,
    )
