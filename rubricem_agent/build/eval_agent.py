"""Builds who answers: a policy with its prompt and its memory, the almanac's expert, or a file of answers."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rubricem_agent.build.memory import build_injector, open_existing_bank
from rubricem_agent.build.policy import build_policy
from rubricem_agent.config.evals import EXPERT, EvalConfig, Style
from rubricem_agent.config.memory import BankConfig
from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.evals.answering.episodes import EpisodeAnswerer, Habits, NoReferences, References
from rubricem_agent.evals.answering.expert import ExpertSchool
from rubricem_agent.evals.answering.given import GivenAnswers
from rubricem_agent.evals.answering.reuse import CrossReuse, Reuse, WithinReuse
from rubricem_agent.evals.run.answering import Answerer
from rubricem_agent.evals.run.runner import Stage
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.policy.base import Policy
from rubricem_agent.prompting.agent_prompt import PromptStyle, agent_prompt
from rubricem_agent.reflection.candidates import PolicyCandidates
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import Setting
from rubricem_env.judge.reflecting import ReflectionJudge
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.llm.usage import Ceilings, Meter
from rubricem_env.tools.base import Toolbox
from rubricem_env.world.jsonl import load_questions, shipped_questions_path

_STYLES: Mapping[Style, PromptStyle] = MappingProxyType(
    {Style.SCAFFOLD: PromptStyle.SCAFFOLD, Style.REACT: PromptStyle.REACT}
)


class OpenAnswerer(NamedTuple):
    """Who answers, and by what that is accounted."""

    answerer: Answerer
    meter: Meter


@asynccontextmanager
async def open_answerer(
    config: EvalConfig, toolbox: Toolbox, *, given: GivenAnswers | None, environ: Mapping[str, str]
) -> AsyncIterator[OpenAnswerer]:
    """Who the settings name, or `given`; closed on the way out. Where only verdicts are made, nobody has to answer.

    Raises:
        UsageError: a key, a file or a package is missing.
    """
    if config.stage is Stage.VERDICTS:
        given = GivenAnswers("nobody", {})
    opened = OpenAnswerer(given, Meter()) if given is not None else _open(config, toolbox, environ=environ)
    try:
        yield opened
    finally:
        await opened.answerer.aclose()


def _open(config: EvalConfig, toolbox: Toolbox, *, environ: Mapping[str, str]) -> OpenAnswerer:
    settings = PolicyConfig(policy="scripted" if config.policy == EXPERT else config.policy)
    settings = settings.model_copy(update={"ceilings": Ceilings(dollars=config.budget), "retry": config.retry})
    built = build_policy(settings, environ)
    policy: Policy = _expert(config) if config.policy == EXPERT else built.policy
    setting = Setting(policy, toolbox, sampling=settings.sampling)
    habits = Habits(
        agent_prompt(toolbox.names, style=_STYLES[config.style]),
        _references(config, policy),
        attempts=config.attempts,
        seed=config.seed,
    )
    return OpenAnswerer(EpisodeAnswerer(setting, habits), built.meter)


def _expert(config: EvalConfig) -> Policy:
    path = Path(config.data) if config.data else shipped_questions_path()
    return ExpertSchool.over(load_questions(path), is_flat=config.style is Style.REACT).policy()


def _references(config: EvalConfig, policy: Policy) -> References:
    injector = build_injector(BankConfig(), policy.count_tokens)
    if config.reuse is Reuse.CROSS and config.bank is not None:
        return CrossReuse(open_existing_bank(config.bank, embeds=True), injector)
    if config.reuse is Reuse.WITHIN:
        return WithinReuse(_empty_bank, _reflector_of(policy), injector=injector)
    return NoReferences()


def _empty_bank() -> RubricBank:
    """For one example: its lesson is found by the question's key, so that any embedder will do."""
    return RubricBank.in_memory(HashingEmbedder())


def _reflector_of(policy: Policy) -> Callable[[RubricBank], Reflector]:
    # The judge is never asked: reflections at inference are unjudged.
    judge: ReflectionJudge = RulesJudge()
    return lambda bank: Reflector(PolicyCandidates(policy), judge, bank)
