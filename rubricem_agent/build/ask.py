"""Puts together what one question needs: a policy, tools, and lessons where they are asked for."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from rubricem_agent.build.lessons import Lessons, build_lessons
from rubricem_agent.build.policy import build_policy
from rubricem_agent.build.tools import open_tools
from rubricem_agent.config.policy import PolicyConfig
from rubricem_agent.config.tools import RemoteToolsConfig, ToolsConfig, load_tools_config
from rubricem_agent.policy.base import Policy
from rubricem_agent.rollout.run import Setting
from rubricem_env.domain.errors import ConfigError
from rubricem_env.env.limits import EpisodeLimits
from rubricem_env.llm.usage import Meter


class AskConfig(NamedTuple):
    """What `rubricem ask` was told."""

    policy: PolicyConfig
    tools: str = "offline"
    """offline, web, the path of a TOML file of settings, or the URL of a tool server."""
    limits: EpisodeLimits = EpisodeLimits()
    bank: Path | None = None
    reads_lessons: bool = False
    """From the bank, before the first attempt."""
    takes_lessons: bool = False
    """From an attempt, for the next one; where there is no bank yet, one begins."""


class AskParts(NamedTuple):
    """What is ready to be used."""

    setting: Setting
    meter: Meter
    lessons: Lessons | None


@asynccontextmanager
async def open_ask(config: AskConfig, environ: Mapping[str, str]) -> AsyncIterator[AskParts]:
    """Connect everything; it is closed on the way out.

    Raises:
        UsageError: something is missing or misspelt; the message says the way out.
    """
    tools = _tools_config(config.tools)
    policy, meter = build_policy(config.policy, environ)
    try:
        lessons = _lessons(config, policy)
        async with open_tools(tools, environ) as opened:
            setting = Setting(policy, opened.toolbox, config.limits, config.policy.sampling)
            yield AskParts(setting, meter, lessons)
    finally:
        await policy.aclose()


def _lessons(config: AskConfig, policy: Policy) -> Lessons | None:
    if not (config.reads_lessons or config.takes_lessons):
        return None
    return build_lessons(config.bank, policy, may_begin=config.takes_lessons)


def _tools_config(tools: str) -> ToolsConfig:
    if tools == "offline":
        return ToolsConfig()
    if tools == "web":
        return ToolsConfig(backend="web")
    address = urlsplit(tools)
    if address.scheme in ("http", "https") and address.hostname:
        return ToolsConfig(remote=RemoteToolsConfig(url=tools))
    if Path(tools).suffix != ".toml":
        raise ConfigError(
            f"there are no tools {tools!r}. Use offline, web, a TOML file of settings, or the URL of a tool server."
        )
    return load_tools_config(Path(tools))
