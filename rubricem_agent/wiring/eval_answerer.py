"""Opens what answers the examples of an evaluation: a policy in episodes with its memory, or a file of answers."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from rubricem_agent.config.bank import BankConfig
from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.evals import answers as answerers
from rubricem_agent.evals.expert_policy import expert_policy
from rubricem_agent.evals.given_answers import GivenAnswers
from rubricem_agent.evals.references import References, cross_references, no_references, within_references
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.model_names import EXPERT, SCRIPTED
from rubricem_agent.policy.base import Policy
from rubricem_agent.prompting import agent_prompt, read_agent_prompts
from rubricem_agent.reflection.reflector import Reflector
from rubricem_agent.rollout.run import RolloutContext
from rubricem_agent.wiring.eval_config import EvalConfig
from rubricem_agent.wiring.eval_plan import PlannedEvaluation
from rubricem_agent.wiring.memory import build_injector, open_existing_bank
from rubricem_agent.wiring.models import build_policy, system_of
from rubricem_agent.wiring.question_tools import refuse_absent_tools
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.llm.usage import Meter, SpendLimits
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.spec import RUN_SQL, ToolSpec
from rubricem_env.world.almanac import load_questions, shipped_questions_path


def build_answerer(
    planned: PlannedEvaluation,
    toolbox: Toolbox,
    *,
    environ: Mapping[str, str],
    stack: AsyncExitStack,
    specs: Sequence[ToolSpec] = (),
) -> tuple[answerers.Answerer, Meter]:
    """The answerer and the meter of its cost.

    Nobody answers where only verdicts are made. `stack` closes the policy. `specs` describe tools as they were opened.

    Raises:
        ConfigError: no tool is there that the task calls.
    """
    config = planned.config
    given = planned.given
    if config.stage == "verdicts":
        given = GivenAnswers("nobody", {})
    if given is not None:
        return given.answer, Meter()
    settings = PolicyConfig(
        policy=SCRIPTED if config.policy == EXPERT else config.policy,
        sampling=config.sampling,
        effort=config.effort,
        ceilings=SpendLimits(dollars=config.budget),
        retry=config.retry,
    )
    policy, meter = build_policy(settings, environ, prices=planned.prices)
    is_flat = config.style == "react"
    if config.policy == EXPERT:
        path = Path(config.data) if config.data else shipped_questions_path()
        policy = expert_policy(load_questions(path), is_flat=is_flat)
    stack.push_async_callback(policy.aclose)
    stage_set = config.stage_set
    refuse_absent_tools(stage_set.scaffold, toolbox.names)
    answerer = partial(
        answerers.answer_in_episodes,
        context=RolloutContext(policy, toolbox, config.limits, settings.sampling, config.context),
        prompt=agent_prompt(
            toolbox.names,
            style=config.style,
            system=system_of(config.policy) if stage_set.scaffold == DEFAULT else "",
            prompts=read_agent_prompts(config.agent_prompts, stage_set),
            scaffold=stage_set.scaffold,
            specs=[spec for spec in specs if spec.name == RUN_SQL],
        ),
        references=_build_references(config, policy),
        attempts=config.attempts,
        seed=config.seed,
    )
    return answerer, meter


def _build_references(config: EvalConfig, policy: Policy) -> References:
    stage_set = config.stage_set
    prompts = read_agent_prompts(config.agent_prompts, stage_set)
    scaffold = stage_set.scaffold
    injector = build_injector(BankConfig(), policy.count_tokens, prompts=prompts, scaffold=scaffold)
    if config.reuse == "cross" and config.bank is not None:
        return partial(
            cross_references, bank=open_existing_bank(config.bank, embeds=True, scaffold=scaffold), injector=injector
        )
    if config.reuse == "within":
        # A bank of one example: lessons are retrieved by the question's key, so any embedder will do. The judge is
        # never called: reflections at inference are unjudged.
        return partial(
            within_references,
            open_bank=lambda: RubricBank.in_memory(HashingEmbedder()),
            open_reflector=lambda bank: Reflector(policy, RulesJudge(), bank, prompts=prompts),
            injector=injector,
        )
    return no_references
