"""Builds the components of a local run from its settings: policy, tools, judge, bank, learner."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.build.models import BuiltJudge
from rubricem_agent.learn.curriculum import Curriculum
from rubricem_agent.learn.deferred import Deferred, Ticket
from rubricem_agent.learn.record import RECORD_FOLDER, RunRecorder
from rubricem_agent.memory.bank import Retrieved, RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import Injector
from rubricem_agent.policy.local import LocalPolicy, load_tokenizer
from rubricem_agent.prompting import AgentPrompt, agent_prompt
from rubricem_agent.reflection.reflector import JudgedAttempt, ReflectionOutcome, Reflector
from rubricem_agent.rollout.rollout import Rollout
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.research_env import shipped_toolbox
from rubricem_env.judge.audit import HeldOutAudit
from rubricem_env.judge.base import Group
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics import RubricBuffer
from rubricem_env.judge.scoring import GroupJudgement
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.judge import AlmanacJudge
from rubricem_env.world.questions import Question

from ..settings import with_run_seed
from .inputs import load_trained, make_audit, read_run_questions
from .learner import Learner
from .settings import LocalConfig, with_system

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
    train: dict[str, Query]
    """Training questions by query key."""
    held_out: tuple[Query, ...]
    """The questions of the evaluations, in their order."""
    truth: dict[str, Question]
    """The truth about both by query key; empty for own questions."""
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
    true: list[tuple[float, ...]]
    """The true quality of each rollout by stage, group by group: it audits the judge, and nothing that trains reads it. Empty
    without truth."""
    shown: dict[str, tuple[Retrieved, ...]]
    """Lessons in the prompt of each question, by its key."""


def make_parts(config: LocalConfig, toolbox: Toolbox | None = None, judge: BuiltJudge | None = None) -> Parts:
    """Load the policy and initialise everything else; tools or a judge that are None are the almanac's own.

    Open seeds in the settings become the run's seed, so that the settings determine every draw.

    Raises:
        ConfigError: the policy's folder holds no policy, or the settings do not fit the questions.
        FileFormatError: the questions cannot be read.
    """
    config = with_system(with_run_seed(config, config.seed))
    train, held_out, truth = read_run_questions(config)
    toolbox = toolbox or shipped_toolbox()
    prompt = agent_prompt(toolbox.names, style=config.style, system=config.system or "")
    model = load_trained(config)
    tokenizer = load_tokenizer(config.policy)
    policy = LocalPolicy.over(model, tokenizer, rows=config.rows, max_length=config.reflection.total_tokens)
    own = AlmanacJudge(truth.values(), knobs=config.knobs, seed=config.seed)
    bank = RubricBank.in_memory(HashingEmbedder())
    learner = Learner.over(
        model,
        learning_rate=config.learning_rate,
        loss=config.loss,
        max_grad_norm=config.max_grad_norm,
        micro_batch_tokens=config.micro_batch_tokens,
    )
    reflector = Reflector(
        policy,
        judge.reflection_judge if judge else own,
        bank,
        settings=config.reflection,
        version=lambda: learner.updates,
    )
    pending: Pending = {}
    longest = max((*train.values(), *held_out), key=lambda query: len(query.question))
    length = len(tokenizer.encode_opening(prompt.opening(longest))) + config.limits.max_tokens
    length += config.reference_tokens if config.meta_policy else 0
    if length > config.reflection.total_tokens:
        raise ConfigError(
            f"an episode may have {length} tokens (the longest question's prompt, reference_tokens, limits.max_tokens), and "
            f"the policy's cache holds reflection.total_tokens {config.reflection.total_tokens}. Raise the last, or lower "
            "the others."
        )
    return Parts(
        config=config,
        learner=learner,
        policy=policy,
        prompt=prompt,
        toolbox=toolbox,
        judge=StepJudge(judge.judge if judge else own, RubricBuffer(), settings=config.judge.settings),
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
        held_out=held_out,
        truth=truth,
        recorder=RunRecorder(config.out / RECORD_FOLDER) if config.record else None,
        audit=make_audit(config, {key: truth[key] for key in train}) if config.held_out_judge.every else None,
    )


def make_deferred(reflector: Reflector, pending: Pending) -> Deferred[ReflectionOutcome]:
    """The background reflections of a run, each on the group that waits under its ticket."""

    async def reflect(ticket: Ticket) -> ReflectionOutcome:
        return await reflector.reflect(pending.pop(ticket), step=ticket.step)

    return Deferred(
        reflect,
        encode=lambda outcome: outcome.model_dump(mode="json"),
        decode=lambda form: ReflectionOutcome.model_validate(form, strict=False),
    )
