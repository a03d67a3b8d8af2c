"""Builds judges from their settings: the place that knows the backends, their keys and their optional packages."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import SecretStr

from rubricem_agent.build.keys import ServerKey, google_key_for, key_for
from rubricem_agent.config.judge import GEMINI, RULES, JudgeConfig, JudgeSpec, parse_judge
from rubricem_env.domain.errors import MissingExtraError
from rubricem_env.judge.base import Judge
from rubricem_env.judge.ensemble import EnsembleJudge
from rubricem_env.judge.llm_judge import LLMJudge
from rubricem_env.judge.reflecting import ReflectionJudge
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.llm.base import ChatModel
from rubricem_env.llm.limiter import Limiter
from rubricem_env.llm.metered import MeteredModel
from rubricem_env.llm.retry import Timing
from rubricem_env.llm.secrets import Redactor
from rubricem_env.llm.usage import Meter

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
