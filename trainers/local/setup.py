"""The parts of a local run, put together from its settings: what acts, judges, remembers and learns."""

import asyncio
import time
from typing import NamedTuple

import numpy as np
import torch

from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.learn.deferred import Codec, Deferred, DeferredTiming, Ticket
from rubricem_agent.learn.record import RECORD_FOLDER, RunRecorder
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
from rubricem_agent.prompting import AgentPrompt, agent_prompt
from rubricem_agent.reflection.candidates import PolicyCandidates
from rubricem_agent.reflection.reflector import JudgedAttempt, ReflectionOutcome, Reflector
from rubricem_env.env.research_env import query_of, shipped_toolbox
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics import RubricBuffer
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.judge import AlmanacJudge
from rubricem_env.world.questions import Question
from trainers.local.learner import Learner
from trainers.local.settings import LocalConfig
from trainers.settings import with_run_seed

Pending = dict[Ticket, list[JudgedAttempt]]
"""Judged groups that are waiting to be reflected on."""


class Parts(NamedTuple):
    """Everything that a run is made of."""

    config: LocalConfig
    learner: Learner
    policy: LocalPolicy
    prompt: AgentPrompt
    toolbox: Toolbox
    judge: StepJudge
    bank: RubricBank
    injector: Injector
    curriculum: Curriculum
    deferred: Deferred[ReflectionOutcome]
    pending: Pending
    train: dict[str, Question]
    """Training questions by query key."""
    held_out: tuple[Question, ...]
    """The questions of the examinations, in their order."""
    recorder: RunRecorder | None
    """None where nothing is kept to be looked at."""


def make_parts(config: LocalConfig) -> Parts:
    """Load the policy and set everything else to its beginning.

    The settings are kept with the run's seed wherever another was not given, so that they say what is drawn.

    Raises:
        ConfigError: the policy's folder holds no policy, or the settings do not fit the questions.
    """
    config = with_run_seed(config, config.seed)
    model = load_model(config.policy)
    model.to(dtype=torch.float32)  # type: ignore[call-arg]
    tokenizer = load_tokenizer(config.policy)
    policy = LocalPolicy.over(model, tokenizer, rows=config.rows, max_length=config.reflection.total_tokens)
    questions = load_questions(shipped_questions_path())
    train = {query_of(question).key: question for question in questions if question.split == "train"}
    toolbox = shipped_toolbox()
    almanac_judge = AlmanacJudge(questions, knobs=config.knobs, seed=config.seed)
    bank = RubricBank.in_memory(HashingEmbedder())
    learner = Learner.over(
        model,
        learning_rate=config.learning_rate,
        loss=config.loss,
        max_grad_norm=config.max_grad_norm,
        micro_batch_tokens=config.micro_batch_tokens,
    )
    reflector = Reflector(
        PolicyCandidates(policy), almanac_judge, bank, settings=config.reflection, version=lambda: learner.updates
    )
    pending: Pending = {}
    return Parts(
        config=config,
        learner=learner,
        policy=policy,
        prompt=AgentPrompt(config.system, "") if config.system else agent_prompt(toolbox.names),
        toolbox=toolbox,
        judge=StepJudge(almanac_judge, RubricBuffer(), settings=config.judge),
        bank=bank,
        injector=Injector(count_tokens=policy.count_tokens, budget=config.reference_tokens),
        curriculum=Curriculum(
            list(train),
            batch_size=config.questions_per_step,
            window=config.window,
            rng=np.random.default_rng(config.seed),
        ),
        deferred=_make_deferred(reflector, pending),
        pending=pending,
        train=train,
        held_out=tuple(question for question in questions if question.split == config.held_out),
        recorder=RunRecorder(config.out / RECORD_FOLDER) if config.record else None,
    )


def _make_deferred(reflector: Reflector, pending: Pending) -> Deferred[ReflectionOutcome]:
    """The reflections of a run, each on the group that waits under its ticket."""

    async def reflect(ticket: Ticket) -> ReflectionOutcome:
        return await reflector.reflect(pending.pop(ticket), step=ticket.step)

    codec = Codec[ReflectionOutcome](
        encode=lambda outcome: outcome.model_dump(mode="json"),
        decode=lambda form: ReflectionOutcome.model_validate(form, strict=False),
    )
    timing = DeferredTiming(time.monotonic, asyncio.sleep)
    return Deferred(reflect, codec=codec, timing=timing, has_lesson=lambda outcome: outcome.has_lesson)
