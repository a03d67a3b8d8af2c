"""The policy and the judges of an evaluation: their names in its manifest and in price lists, and their prices."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from rubricem_agent.model_names import EXPERT, GIVEN, LOCAL, OPENAI_URL, OWN_JUDGES, SCRIPTED, parse_judge, parse_policy
from rubricem_agent.wiring.eval_config import EvalConfig, default_judges
from rubricem_agent.wiring.prices import list_prices
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.prices import Price, price_of, with_given
from rubricem_records.evaluations.manifest import judge_model
from rubricem_records.evaluations.rules import Rules


def model_names(config: EvalConfig, rules: Rules) -> tuple[str, tuple[str, ...]]:
    """The policy and the judges of the chosen stages, by the names that prices are listed under.

    The policy is empty where answering is free: a script, a file, a model in this process, or no answering.

    Raises:
        ConfigError: there is no such policy or judge.
    """
    policy = ""
    judges = tuple(map(judge_model, judge_names(config, rules)))
    if config.policy != EXPERT and not config.policy.startswith(GIVEN):
        spec = parse_policy(config.policy)
        policy = "" if spec.backend in (SCRIPTED, LOCAL) else spec.model
    return "" if config.stage == "verdicts" else policy, () if config.stage == "answers" else judges


def judge_names(config: EvalConfig, rules: Rules) -> tuple[str, ...]:
    """BACKEND:MODEL[@URL] of each, without the URL of the default service: another server may hold another model.

    Raises:
        ConfigError: a judge is no model, or is named twice.
    """
    given = [parse_judge(judge) for judge in config.judges]
    if not rules.judge:
        return ()
    names: tuple[str, ...] = ()
    for spec in given or map(parse_judge, default_judges(rules)):
        # A login in the address is no part of who judges, and is not written down.
        address = ",".join(
            url.rstrip("/").replace(urlsplit(url).netloc, urlsplit(url).netloc.rpartition("@")[2], 1)
            for url in spec.urls
        )
        name = f"{spec.backend}:{spec.model}" if spec.model else spec.backend
        names += (name if address in ("", OPENAI_URL) else f"{name}@{address}",)
    if set(names) & set(OWN_JUDGES):
        raise ConfigError(
            "benchmarks are judged by models. Use --judge gemini:MODEL, openai:MODEL@URL, responses:MODEL or "
            "anthropic:MODEL."
        )
    if len(set(names)) < len(names):
        raise ConfigError(f"a judge is named twice in {', '.join(names)}; agreement is between different judges.")
    return names


def prices_of(config: EvalConfig, *models: str) -> Mapping[str, Price]:
    """The list prices with those that the settings give; raises ConfigError where a budget could not hold a model."""
    given = dict(config.prices)
    rest = given.pop("", None)
    prices = with_given(given, list_prices())
    unpriced = [model for model in dict.fromkeys(models) if model and price_of(model, prices) is None]
    if rest is not None:
        return with_given(dict.fromkeys(unpriced, rest), prices)
    if config.budget is not None and unpriced:
        raise ConfigError(
            f"--budget is {config.budget:g} dollars, and the price of {', '.join(unpriced)} is unknown. Give what a "
            f"million tokens cost, read and written, as in --price {unpriced[0]}=2,12, or 0,0 for a server of your own."
        )
    return prices
