"""Builds the components of a local run from its settings: policy, judge, bank, learner."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.learn.deferred import Deferred, Ticket
from rubricem_agent.learn.record import RECORD_FOLDER, RunRecorder
from rubricem_agent.memory.bank import Retrieved, RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
from rubricem_agent.prompting import AgentPrompt, agent_prompt
from rubricem_agent.reflection.reflector import JudgedAttempt, ReflectionOutcome, Reflector
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.env.research_env import query_of, shipped_toolbox
from rubricem_env.judge.audit import HeldOutAudit
from rubricem_env.judge.base import Group
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics import RubricBuffer
from rubricem_env.judge.scoring import GroupJudgement
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.judge import AlmanacJudge, TrueQuality, criteria_of
from rubricem_env.world.questions import Question

from ..settings import with_run_seed
from .learner import Learner
from .settings import LocalConfig

Pending = dict[Ticket, Sequence[JudgedAttempt]]
"""Judged groups that wait for their reflection."""


class Parts(NamedTuple):
    """The components of a run."""

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
    """The questions of the evaluations, in their order."""
    recorder: RunRecorder | None
    """None where nothing is recorded for the viewer."""
    audit: HeldOutAudit | None
    """None where no held-out judge scores rollouts."""


class JudgedStep(NamedTuple):
    """A step's rollouts, group by group, with their scores."""

    groups: list[list[Rollout]]
    readings: list[Group]
    """The same rollouts as the judge reads them."""
    judgements: tuple[GroupJudgement, ...]
    true: list[TrueQuality]
    """The true quality of each rollout, group by group: it audits the judge, and nothing that trains reads it."""
    shown: dict[str, tuple[Retrieved, ...]]
    """Lessons in the prompt of each question, by its key."""


def make_parts(config: LocalConfig) -> Parts:
    """Load the policy and initialise everything else.

    Open seeds in the settings become the run's seed, so that the settings determine every draw.

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
    reflector = Reflector(policy, almanac_judge, bank, settings=config.reflection, version=lambda: learner.updates)
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
        deferred=make_deferred(reflector, pending),
        pending=pending,
        train=train,
        held_out=tuple(question for question in questions if question.split == config.held_out),
        recorder=RunRecorder(config.out / RECORD_FOLDER) if config.record else None,
        audit=make_audit(config, train) if config.held_out_judge.every else None,
    )


def make_audit(config: LocalConfig, questions: Mapping[str, Question]) -> HeldOutAudit:
    """The held-out judge of a run; its own rubric set of a question are the true criteria."""
    settings = config.held_out_judge
    seed = config.seed if settings.seed is None else settings.seed
    judge = AlmanacJudge(questions.values(), knobs=settings.knobs, seed=seed)
    own = questions.items() if settings.rubrics == "held_out" else ()
    rubrics = {key: list(criteria_of(question)) for key, question in own}
    return HeldOutAudit(judge, settings=settings, rubrics=rubrics, seed=seed)


def make_deferred(reflector: Reflector, pending: Pending) -> Deferred[ReflectionOutcome]:
    """The background reflections of a run, each on the group that waits under its ticket."""

    async def reflect(ticket: Ticket) -> ReflectionOutcome:
        return await reflector.reflect(pending.pop(ticket), step=ticket.step)

    return Deferred(
        reflect,
        encode=lambda outcome: outcome.model_dump(mode="json"),
        decode=lambda form: ReflectionOutcome.model_validate(form, strict=False),
        has_lesson=lambda outcome: outcome.has_lesson,
    )
