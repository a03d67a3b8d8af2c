"""The models that an evaluation asks: named rightly, and priced where a budget is to hold them."""

from typing import NamedTuple

from rubricem_agent.config.evals import EXPERT, GIVEN, EvalConfig, default_judges
from rubricem_agent.config.judge import parse_judge
from rubricem_agent.config.policy import LOCAL, SCRIPTED, parse_policy
from rubricem_agent.evals.modes import Rules
from rubricem_agent.evals.run.manifest import judge_model
from rubricem_agent.evals.run.runner import Stage
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.prices import price_of


class AskedModels(NamedTuple):
    """By the names that prices are listed under."""

    policy: str
    """Empty where answering costs nothing: a script, a file, a model in this process, or no answering at all."""
    judges: tuple[str, ...]

    @property
    def unpriced(self) -> tuple[str, ...]:
        """Those whose calls no budget can count."""
        return tuple(model for model in self._all if price_of(model) is None)

    @property
    def priced(self) -> tuple[str, ...]:
        """Those whose calls a budget counts."""
        return tuple(model for model in self._all if price_of(model) is not None)

    @property
    def _all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(model for model in (self.policy, *self.judges) if model))


def asked_models(config: EvalConfig, rules: Rules) -> AskedModels:
    """The models that the settings name, in the stages that they name.

    Raises:
        ConfigError: there is no such policy or judge, or a budget would hold none of them.
    """
    policy, judges = _policy_model(config), judge_names(config, rules)
    asked = AskedModels(
        "" if config.stage is Stage.VERDICTS else policy, () if config.stage is Stage.ANSWERS else judges
    )
    if config.budget is not None and asked.unpriced and not asked.priced:
        raise ConfigError(
            f"--budget is {config.budget:g} dollars, and no price is known of {', '.join(asked.unpriced)}: it would "
            "never stop this run. Leave --budget out, and bound the run with --limit."
        )
    return asked


def judge_names(config: EvalConfig, rules: Rules) -> tuple[str, ...]:
    """Models, not addresses: the same model at another address is the same judge.

    Raises:
        ConfigError: a judge is no model, or is named twice.
    """
    for judge in config.judges:
        parse_judge(judge)
    if not rules.judge:
        return ()
    names = tuple(judge_model(judge) for judge in config.judges or default_judges(rules))
    if "rules" in names:
        raise ConfigError("benchmarks are judged by models. Use --judge gemini:MODEL or openai:MODEL@URL.")
    if len(set(names)) < len(names):
        raise ConfigError(f"a judge is named twice in {', '.join(names)}; agreement is between different judges.")
    return names


def _policy_model(config: EvalConfig) -> str:
    if config.policy == EXPERT or config.policy.startswith(GIVEN):
        return ""
    spec = parse_policy(config.policy)
    return "" if spec.backend in (SCRIPTED, LOCAL) else spec.model
