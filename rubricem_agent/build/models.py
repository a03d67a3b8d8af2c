"""Whose key goes to which server, and in which variable it is looked for.

Builds policies from their settings: the place that knows the backends, their keys and their optional packages.

Builds judges from their settings: the place that knows the backends, their keys and their optional packages.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from rubricem_agent.config import (
    GEMINI,
    LOCAL,
    RULES,
    SCRIPTED,
    VLLM,
    JudgeConfig,
    JudgeSpec,
    PolicyConfig,
    PolicySpec,
    parse_judge,
    parse_policy,
)
from rubricem_agent.policy.base import Opening, Policy, model_folder
from rubricem_agent.policy.scripted import QuotingResearcher, ScriptedPolicy
from rubricem_agent.policy.text import Service
from rubricem_env.domain.errors import ConfigError, MissingExtraError
from rubricem_env.judge.base import Judge, ReflectionJudge
from rubricem_env.judge.ensemble import EnsembleJudge
from rubricem_env.judge.llm_judge import LLMJudge
from rubricem_env.judge.rules_judge import RulesJudge
from rubricem_env.llm.base import ChatModel, MeteredModel, Redactor, read_secret
from rubricem_env.llm.limits import Limiter, Timing
from rubricem_env.llm.usage import Meter

OPENAI_KEY = "OPENAI_API_KEY"
OPENAI_HOST = "api.openai.com"
GEMINI_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
GEMINI_HOST = "googleapis.com"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ServerKey(NamedTuple):
    """A server's key, or none, and the variable that holds it or would hold it: what a refusal is answered with."""

    value: SecretStr | None
    variable: str


def key_for(url: str, environ: Mapping[str, str], *, own: str, who: str) -> ServerKey:
    """The key in the variable `own` for any server; OpenAI's key for OpenAI alone, so that a URL cannot fetch it.

    Raises:
        ConfigError: the server is OpenAI's, and there is no key.
    """
    written = environ.get(own, "").strip()
    if written:
        return ServerKey(SecretStr(written), own)
    if urlsplit(url).hostname != OPENAI_HOST:
        return ServerKey(None, own)
    return ServerKey(read_secret(environ, OPENAI_KEY, own, purpose=f"the {who} at {OPENAI_HOST}"), OPENAI_KEY)


def google_key_for(url: str, environ: Mapping[str, str], *, own: str, who: str) -> SecretStr:
    """The key in the variable `own` for any server; Google's key for Google and this machine alone.

    Raises:
        ConfigError: there is none that may go there.
    """
    return read_secret(environ, *google_key_names(url, own=own), purpose=f"{who} at {_host(url)}")


def google_key_names(url: str, *, own: str) -> tuple[str, ...]:
    """The variables that are looked into for a server of Gemini's API, the first one first."""
    host = _host(url)
    is_trusted = host == GEMINI_HOST or host.endswith(f".{GEMINI_HOST}") or host in LOOPBACK
    return (own, *GEMINI_KEYS) if is_trusted else (own,)


def _host(url: str) -> str:
    return urlsplit(url).hostname or GEMINI_HOST


POLICY_KEY = "RUBRICEM_POLICY_KEY"


class BuiltPolicy(NamedTuple):
    """A policy with what it is accounted by."""

    policy: Policy
    meter: Meter


def build_policy(
    config: PolicyConfig, environ: Mapping[str, str] = os.environ, *, seed: int | None = None
) -> BuiltPolicy:
    """The policy that the settings describe. `seed` is that of the waits between retries alone.

    Raises:
        ConfigError: a name is wrong, a key is missing, a folder holds no model.
        MissingExtraError: a backend's package is not installed.
    """
    spec = parse_policy(config.policy)
    meter = Meter(config.ceilings)
    if spec.backend == SCRIPTED:
        return BuiltPolicy(ScriptedPolicy(_quoting_researcher, name=SCRIPTED), meter)
    if spec.backend == LOCAL:
        return BuiltPolicy(_local(spec, config), meter)
    timing = Timing.real(seed)
    service = Service(spec.model, Limiter(config.rates, timing), meter, timing, config.retry)
    if spec.backend == GEMINI:
        # Google's key goes to Google alone: any other address gets the policy's own key.
        names = (POLICY_KEY,) if spec.url else GEMINI_KEYS
        key = read_secret(environ, *names, purpose=f"the policy gemini:{spec.model}")
        return BuiltPolicy(_gemini(spec, key, service=service, timeout=config.timeout), meter)
    found = key_for(spec.url, environ, own=POLICY_KEY, who="policy")
    if spec.backend == VLLM:
        return BuiltPolicy(_served_in_tokens(spec, found, service=service, timeout=config.timeout), meter)
    return BuiltPolicy(_openai(spec, found, service=service, timeout=config.timeout), meter)


def _quoting_researcher(opening: Opening, seed: int) -> QuotingResearcher:
    """The question is what stands before the last paragraph, which asks for a form, and after the references."""
    without_form = opening.user.rpartition("\n\n")[0] or opening.user
    return QuotingResearcher(without_form.rpartition("</reference_examples>")[2])


def _local(spec: PolicySpec, config: PolicyConfig) -> Policy:
    path = model_folder(Path(spec.model).expanduser())
    if not path.is_dir():
        raise ConfigError(f"there is no folder {path}; local:PATH takes the folder that save_pretrained wrote.")
    try:
        from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "torch", "local", "a local policy") from cause
    return LocalPolicy.over(
        load_model(path),
        load_tokenizer(path),
        name=f"local:{path.name}",
        rows=config.local_rows,
        max_length=config.local_max_length,
    )


def _gemini(spec: PolicySpec, key: SecretStr, *, service: Service, timeout: float) -> Policy:
    try:
        from rubricem_agent.policy.gemini import GeminiPolicy
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "google-genai", "judge", "the Gemini policy") from cause
    return GeminiPolicy.connect(spec.model, key, service=service, base_url=spec.url or None, timeout=timeout)


def _openai(spec: PolicySpec, key: ServerKey, *, service: Service, timeout: float) -> Policy:
    try:
        from rubricem_agent.policy.openai_compatible import OpenAICompatiblePolicy, OpenAIServer
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "httpx2", "judge", "an OpenAI-compatible policy") from cause
    server = OpenAIServer.connect(spec.model, spec.url, key=key.value, key_variable=key.variable, timeout=timeout)
    return OpenAICompatiblePolicy(server, service)


def _served_in_tokens(spec: PolicySpec, key: ServerKey, *, service: Service, timeout: float) -> Policy:
    folder = Path(spec.tokenizer).expanduser()
    if not folder.is_dir():
        raise ConfigError(
            f"there is no folder {folder} with the tokenizer of {spec.model}; name it: vllm:MODEL@URL#FOLDER."
        )
    try:
        from rubricem_agent.policy.openai_compatible import OpenAIServer
        from rubricem_agent.policy.vllm import ServedTokenPolicy
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "httpx2", "judge", "a policy on a vLLM server") from cause
    try:
        from rubricem_agent.policy.local import load_tokenizer
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "transformers", "local", "a policy in token mode") from cause
    server = OpenAIServer.connect(spec.model, spec.url, key=key.value, key_variable=key.variable, timeout=timeout)
    return ServedTokenPolicy(server, load_tokenizer(folder), service=service)


JUDGE_KEY = "RUBRICEM_JUDGE_KEY"


class BuiltJudge(NamedTuple):
    """A judge with what it is accounted by and what has to be closed after it."""

    judge: Judge
    reflection_judge: ReflectionJudge
    """The first one named: reflections are not judged by ensembles."""
    meter: Meter
    models: tuple[ChatModel, ...]

    async def aclose(self) -> None:
        for model in self.models:
            await model.aclose()


def build_judge(config: JudgeConfig, environ: Mapping[str, str] = os.environ) -> BuiltJudge:
    """The judge that the settings describe; all its models share one meter and one limiter.

    Raises:
        ConfigError: a name is wrong or a key is missing.
        MissingExtraError: a backend's package is not installed.
    """
    timing = Timing.real(config.settings.seed)
    meter = Meter(config.ceilings)
    limiter = Limiter(config.rates, timing)
    members: list[RulesJudge | LLMJudge] = []
    models: list[ChatModel] = []
    for name in (config.judge, *config.also):
        spec = parse_judge(name)
        if spec.backend == RULES:
            members.append(RulesJudge())
            continue
        model, redactor = _connect(spec, environ, timeout=config.timeout)
        models.append(MeteredModel(model, limiter=limiter, meter=meter, redactor=redactor))
        members.append(LLMJudge.over(models[-1], settings=config.ask, timing=timing))
    judge: Judge = members[0] if len(members) == 1 else EnsembleJudge(members, combine=config.combine)
    return BuiltJudge(judge, members[0], meter, tuple(models))


def _connect(spec: JudgeSpec, environ: Mapping[str, str], *, timeout: float) -> tuple[ChatModel, Redactor]:
    if spec.backend == GEMINI:
        key = google_key_for(spec.url, environ, own=JUDGE_KEY, who=f"the judge gemini:{spec.model}")
        return _connect_gemini(spec, key, timeout=timeout), Redactor([key])
    found = key_for(spec.url, environ, own=JUDGE_KEY, who="judge")
    return _connect_openai(spec, found, timeout=timeout), Redactor([found.value] if found.value else [])


def _connect_gemini(spec: JudgeSpec, key: SecretStr, *, timeout: float) -> ChatModel:
    try:
        from rubricem_env.llm.gemini import GeminiModel
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "google-genai", "judge", "the Gemini judge") from cause
    return GeminiModel.connect(spec.model, key, base_url=spec.url or None, timeout=timeout)


def _connect_openai(spec: JudgeSpec, key: ServerKey, *, timeout: float) -> ChatModel:
    try:
        from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "httpx2", "judge", "an OpenAI-compatible judge") from cause
    return OpenAICompatibleModel.connect(
        spec.model, spec.url, key=key.value, key_variable=key.variable, timeout=timeout
    )
