"""Builds policies from their settings: the place that knows the backends, their keys and their optional packages."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from rubricem_agent.build.keys import GEMINI_KEYS, ServerKey, key_for
from rubricem_agent.config.policy import GEMINI, LOCAL, SCRIPTED, VLLM, PolicyConfig, PolicySpec, parse_policy
from rubricem_agent.policy.base import Opening, Policy
from rubricem_agent.policy.quoting import QuotingResearcher
from rubricem_agent.policy.scripted import ScriptedPolicy
from rubricem_agent.policy.shipped import model_folder
from rubricem_agent.policy.text_conversation import Service
from rubricem_env.domain.errors import ConfigError, MissingExtraError
from rubricem_env.llm.limiter import Limiter
from rubricem_env.llm.retry import Timing
from rubricem_env.llm.secrets import read_secret
from rubricem_env.llm.usage import Meter

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
        from rubricem_agent.policy.local import LocalPolicy
        from rubricem_agent.policy.pretrained import load_model, load_tokenizer
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
        from rubricem_agent.policy.gemini import GeminiClient, GeminiPolicy
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "google-genai", "judge", "the Gemini policy") from cause
    return GeminiPolicy(GeminiClient.connect(spec.model, key, base_url=spec.url or None, timeout=timeout), service)


def _openai(spec: PolicySpec, key: ServerKey, *, service: Service, timeout: float) -> Policy:
    try:
        from rubricem_agent.policy.openai_compatible import OpenAICompatiblePolicy
        from rubricem_agent.policy.openai_server import OpenAIServer
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
        from rubricem_agent.policy.openai_server import OpenAIServer
        from rubricem_agent.policy.served_tokens import ServedTokenPolicy
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "httpx2", "judge", "a policy on a vLLM server") from cause
    try:
        from rubricem_agent.policy.pretrained import load_tokenizer
    except ModuleNotFoundError as cause:
        raise MissingExtraError(cause.name or "transformers", "local", "a policy in token mode") from cause
    server = OpenAIServer.connect(spec.model, spec.url, key=key.value, key_variable=key.variable, timeout=timeout)
    return ServedTokenPolicy(server, load_tokenizer(folder), service=service)
