"""The names of judges, policies and teachers on a command line: BACKEND[:MODEL[@URL]]."""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from rubricem_agent.policy.base import TINY
from rubricem_env.domain.errors import ConfigError

GIVEN = "file:"
"""Begins the name of a policy that is a file of answers."""
EXPERT = "expert"
"""The almanac's own expert."""
OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com/v1"
POLICY_NAMES = (
    "scripted, tiny, openai:MODEL@URL, vllm:MODEL@URL#FOLDER, gemini:MODEL, responses:MODEL, anthropic:MODEL or "
    "local:PATH"
)
RULES = "rules"
OWN_JUDGES = (RULES,)
"""The judges that ask no model."""
JUDGE_NAMES = f"{', '.join(OWN_JUDGES)}, gemini:MODEL, openai:MODEL@URL, responses:MODEL or anthropic:MODEL"
GEMINI = "gemini"
OPENAI = "openai"
SCRIPTED = "scripted"
LOCAL = "local"
VLLM = "vllm"
GEMINI_BATCH = "gemini-batch"
DIRECTORY = "directory"
RESPONSES = "responses"
ANTHROPIC = "anthropic"
SERVED = (OPENAI, RESPONSES, ANTHROPIC)
"""Backends that one client asks, each in its own wire; the last two have a server of their own."""
TEACHER_NAMES = (
    "scripted, gemini:MODEL, gemini-batch:MODEL, openai:MODEL@URL, responses:MODEL, anthropic:MODEL or directory:PATH"
)


class ModelSpec(NamedTuple):
    """A judge, policy or teacher as the command line names it: BACKEND, BACKEND:MODEL or BACKEND:MODEL@URL."""

    backend: str
    model: str = ""
    """The model's name; the folder of a local model, or of a teacher's request files."""
    url: str = ""
    """Of a judge or a teacher also several, separated by commas."""
    tokenizer: str = ""
    """The folder of the tokenizer, for a model that is served in token mode."""

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(self.url.split(","))


def parse_judge(text: str) -> ModelSpec:
    """Parse a judge's name; raises ConfigError on an unknown backend or a missing or malformed part."""
    return _parse_spec("judge", text, without_model=OWN_JUDGES, with_model=(GEMINI, *SERVED), names=JUDGE_NAMES)


def parse_policy(text: str) -> ModelSpec:
    """Parse a policy's name; raises ConfigError on an unknown backend or a missing or malformed part."""
    backend, _, rest = text.strip().partition(":")
    if text.strip() == TINY:
        return ModelSpec(LOCAL, TINY)
    if backend == LOCAL:
        if not rest:
            raise ConfigError(f"the policy {text!r} lacks the folder of a model. Use {POLICY_NAMES}.")
        return ModelSpec(LOCAL, rest)
    served, _, folder = text.partition("#") if backend == VLLM else (text, "", "")
    spec = _parse_spec(
        "policy", served, without_model=(SCRIPTED,), with_model=(*SERVED, GEMINI, VLLM), names=POLICY_NAMES
    )
    address = urlsplit(spec.url)
    if address.username or address.password or address.query or address.fragment:
        raise ConfigError("the policy's URL has a login, a query or a fragment; keys go into the environment.")
    # Without #FOLDER the model is one, as where vLLM was started with it.
    return spec._replace(tokenizer=folder or spec.model) if backend == VLLM else spec


def parse_teacher(text: str) -> ModelSpec:
    """Parse a teacher's name; raises ConfigError on an unknown backend or a missing or malformed part."""
    backend, _, rest = text.partition(":")
    if backend == DIRECTORY and rest:
        return ModelSpec(DIRECTORY, rest)
    with_model = (GEMINI, GEMINI_BATCH, *SERVED)
    return _parse_spec("teacher", text, without_model=(SCRIPTED,), with_model=with_model, names=TEACHER_NAMES)


def _parse_spec(
    what: str, text: str, *, without_model: tuple[str, ...], with_model: tuple[str, ...], names: str
) -> ModelSpec:
    backend, _, rest = text.strip().partition(":")
    if text.strip() in without_model:
        return ModelSpec(text.strip())
    if backend not in with_model:
        raise ConfigError(f"there is no {what} {text!r}. Use {names}.")
    parts = re.fullmatch(r"(?P<model>[^@\s]+)(?:@(?P<url>\S+))?", rest)
    if parts is None or (backend in (OPENAI, VLLM) and not parts["url"]):
        missing = "a model" if parts is None else "a URL"
        raise ConfigError(f"the {what} {text!r} lacks {missing}. Use {names}.")
    spec = ModelSpec(backend, parts["model"], parts["url"] or "")
    for url in spec.urls if spec.url else ():
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(f"the {what}'s URL is {url!r}; it must start with http:// or https://. Use {names}.")
    if len(spec.urls) > 1 and (what == "policy" or backend != OPENAI):
        raise ConfigError(
            f"the {what} {text!r} has several URLs, as only judges and teachers of openai: may have. Name one, such as "
            "that of a balancer."
        )
    return spec
