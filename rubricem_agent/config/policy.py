"""The settings of a policy: which backend, how it samples, what it may cost."""

import re
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field

from rubricem_agent.policy.base import Sampling
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.limiter import Rates
from rubricem_env.llm.retry import RetryPolicy
from rubricem_env.llm.usage import Ceilings

SCRIPTED = "scripted"
OPENAI = "openai"
GEMINI = "gemini"
LOCAL = "local"
VLLM = "vllm"
_WAY_OUT = "Use scripted, openai:MODEL@URL, vllm:MODEL@URL#FOLDER, gemini:MODEL or local:PATH."
_SERVED = re.compile(r"(?P<model>[^@\s]+)(?:@(?P<url>\S+))?")


class PolicySpec(NamedTuple):
    """A policy as it is named on the command line."""

    backend: str
    model: str = ""
    """The model's name, or the folder of a local one."""
    url: str = ""
    tokenizer: str = ""
    """The folder of the tokenizer of a model that is served in token mode."""


class PolicyConfig(Frozen):
    """Everything that a policy is built from."""

    policy: str = SCRIPTED
    """`scripted`, `openai:MODEL@URL`, `vllm:MODEL@URL#FOLDER`, `gemini:MODEL` or `local:PATH`."""
    sampling: Sampling = Sampling()
    rates: Rates = Rates()
    ceilings: Ceilings = Ceilings()
    retry: RetryPolicy = RetryPolicy()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds of silence after which a server counts as gone."""
    local_rows: Annotated[int, Field(ge=1)] = 16
    """Conversations that a local model keeps in its cache at once."""
    local_max_length: Annotated[int, Field(ge=256)] = 26_624
    """Tokens of one conversation in a local model's cache; the paper's prompt and response together."""


def parse_policy(text: str) -> PolicySpec:
    """A policy's name, taken apart.

    Raises:
        ConfigError: there is no such backend, or a part of the name is missing or not a web address.
    """
    backend, _, rest = text.strip().partition(":")
    if backend == SCRIPTED and not rest:
        return PolicySpec(SCRIPTED)
    if backend not in (OPENAI, GEMINI, LOCAL, VLLM):
        raise ConfigError(f"there is no policy {text!r}. {_WAY_OUT}")
    if backend == LOCAL:
        if not rest:
            raise ConfigError(f"the policy {text!r} lacks the folder of a model. {_WAY_OUT}")
        return PolicySpec(LOCAL, rest)
    if backend == VLLM:
        return _parse_in_tokens(text, rest)
    return _parse_served(text, backend, rest=rest)


def _parse_in_tokens(text: str, rest: str) -> PolicySpec:
    """MODEL@URL#FOLDER; without a folder MODEL is one, as where vLLM was started with it."""
    served, _, folder = rest.partition("#")
    spec = _parse_served(text, VLLM, rest=served)
    return spec._replace(tokenizer=folder or spec.model)


def _parse_served(text: str, backend: str, *, rest: str) -> PolicySpec:
    found = _SERVED.fullmatch(rest)
    if found is None or (backend != GEMINI and not found["url"]):
        lacking = "a model" if found is None else "a URL"
        raise ConfigError(f"the policy {text!r} lacks {lacking}. {_WAY_OUT}")
    url = found["url"] or ""
    address = urlsplit(url)
    if url and (address.scheme not in ("http", "https") or not address.hostname):
        raise ConfigError(f"the policy's URL is {url!r}; it must start with http:// or https://. {_WAY_OUT}")
    if address.username or address.password or address.query or address.fragment:
        raise ConfigError("the policy's URL has a login, a query or a fragment; keys go into the environment.")
    return PolicySpec(backend, found["model"], url)
