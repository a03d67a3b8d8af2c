"""What a local run is given: questions, tools, judges, and the model that is trained; from the settings of the run."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import torch
from transformers import PreTrainedModel

from rubricem_agent.build.models import BuiltJudge, build_judge
from rubricem_agent.build.probe import model_probes, require_answers, search_probes
from rubricem_agent.build.tools import open_tools
from rubricem_agent.data.prepare import read_training_set
from rubricem_agent.policy.local import load_model
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.research_env import query_of
from rubricem_env.judge.audit import HeldOutAudit
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.judge import AlmanacJudge, criteria_of
from rubricem_env.world.questions import Question

from ..lora import add_lora
from ..settings import with_run_seed
from .settings import LocalConfig


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
            judge = build_judge(with_run_seed(config.judge, config.seed))
            stack.push_async_callback(judge.aclose)
        opened = await stack.enter_async_context(open_tools(config.tools, os.environ))
        if config.probe:
            names = (config.judge.judge, *config.judge.also) if judge else ()
            await require_answers([*model_probes(os.environ, judges=names), *search_probes(config.tools, os.environ)])
        yield opened.toolbox, judge


def read_run_questions(config: LocalConfig) -> tuple[dict[str, Query], tuple[Query, ...], dict[str, Question]]:
    """Training questions by key, held-out questions, and the truth about both, which own questions have not.

    Raises:
        ConfigError: a held-out question is trained on.
        FileFormatError: a file cannot be read.
    """
    if config.data is None:
        questions = load_questions(shipped_questions_path())
        queries = [(question.split, query_of(question)) for question in questions]
        train = {query.key: query for split, query in queries if split == "train"}
        held_out = tuple(query for split, query in queries if split == config.held_out)
        return train, held_out, {query_of(question).key: question for question in questions}
    train = {query.key: query for query in read_training_set(config.data)}
    held_out = read_training_set(config.held_out_data) if config.held_out_data else ()
    shared = [query.question for query in held_out if query.key in train]
    if shared:
        raise ConfigError(
            f"{len(shared)} questions of {config.held_out_data} are in {config.data} too, such as {shared[0][:80]!r}; a "
            "policy is evaluated on questions that it was not trained on. Remove them from one of the two."
        )
    return train, held_out, {}


def load_trained(config: LocalConfig) -> PreTrainedModel:
    """The model that is trained: in float32, or with updates in float32 beside its weights as they are saved."""
    model = load_model(config.policy)
    if config.lora is None:
        model.to(dtype=torch.float32)  # type: ignore[call-arg]
    else:
        torch.manual_seed(config.seed)
        add_lora(model, config.lora)
    return model


def make_audit(config: LocalConfig, questions: Mapping[str, Question]) -> HeldOutAudit:
    """The held-out judge of a run; its own rubric set of a question are the true criteria."""
    settings = config.held_out_judge
    seed = config.seed if settings.seed is None else settings.seed
    judge = AlmanacJudge(questions.values(), knobs=settings.knobs, seed=seed)
    own = questions.items() if settings.rubrics == "held_out" else ()
    rubrics = {key: list(criteria_of(question)) for key, question in own}
    return HeldOutAudit(judge, settings=settings, rubrics=rubrics, seed=seed)
