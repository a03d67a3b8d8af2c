"""The settings of a judge: which backend, how it is asked, how rubrics are kept, what it may cost."""

import re
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.judge.asking import AskSettings
from rubricem_env.judge.ensemble import Combine
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.llm.limiter import Rates
from rubricem_env.llm.usage import Ceilings

RULES = "rules"
GEMINI = "gemini"
OPENAI = "openai"
_WAY_OUT = "Use rules, gemini:MODEL or openai:MODEL@URL."
_SPEC = re.compile(r"(?P<backend>[a-z]+)(?::(?P<model>[^@\s]+)(?:@(?P<url>\S+))?)?")


class JudgeSpec(NamedTuple):
    """A judge as it is named on the command line."""

    backend: str
    model: str = ""
    url: str = ""


class JudgeConfig(Frozen):
    """Everything that a judge is built from; the defaults are the paper's."""

    judge: str = RULES
    """`rules`, `gemini:MODEL` or `openai:MODEL@URL`."""
    also: tuple[str, ...] = ()
    """Further judges; with any, they mark as an ensemble."""
    combine: Combine = Combine.MEAN
    ask: AskSettings = AskSettings()
    settings: JudgeSettings = JudgeSettings()
    rates: Rates = Rates()
    ceilings: Ceilings = Ceilings()
    timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds for one call."""


def parse_judge(text: str) -> JudgeSpec:
    """A judge's name, taken apart.

    Raises:
        ConfigError: there is no such backend, or a part of the name is missing or not a web address.
    """
    found = _SPEC.fullmatch(text.strip())
    spec = JudgeSpec(*(part or "" for part in found.groups())) if found else JudgeSpec("")
    if spec.backend not in (RULES, GEMINI, OPENAI):
        raise ConfigError(f"there is no judge {text!r}. {_WAY_OUT}")
    if spec.backend == RULES:
        if spec.model:
            raise ConfigError(f"the judge {text!r} names a model, but rules need none. {_WAY_OUT}")
        return spec
    if not spec.model or (spec.backend == OPENAI and not spec.url):
        lacking = "a model" if not spec.model else "a URL"
        raise ConfigError(f"the judge {text!r} lacks {lacking}. {_WAY_OUT}")
    address = urlsplit(spec.url)
    if spec.url and (address.scheme not in ("http", "https") or not address.hostname):
        raise ConfigError(f"the judge's URL is {spec.url!r}; it must start with http:// or https://. {_WAY_OUT}")
    return spec
