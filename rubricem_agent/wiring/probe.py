"""Asks the models and the search engine of a run for one token each before it begins.

A wrong key, a wrong name or a server that is not there then ends the run in one sentence, before anything is paid for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing

from rubricem_agent.config.search_engines import GoogleSearchConfig, SearchConfig
from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.model_names import (
    DIRECTORY,
    GEMINI,
    GEMINI_BATCH,
    LOCAL,
    OWN_JUDGES,
    SCRIPTED,
    VLLM,
    ModelSpec,
    parse_judge,
    parse_policy,
    parse_teacher,
)
from rubricem_agent.wiring.models import JUDGE_KEY, POLICY_KEY, SEARCH_KEY, TEACHER_KEY, connect_chat_model
from rubricem_agent.wiring.tools import search_backend
from rubricem_env.domain.errors import BoundaryError, ModelError, UsageError
from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.llm.hosts import url_host
from rubricem_env.llm.keys import redact_failure
from rubricem_env.llm.limits.retry import RetryPolicy, call_with_retry
from rubricem_env.llm.limits.timing import Timing

REQUEST = ChatRequest("Reply with OK.", purpose="probe", max_output_tokens=1)
RETRY = RetryPolicy(attempts=3, initial_delay=0.5, max_delay=5.0, deadline=60.0)
TIMEOUT = 30.0
_FREE = frozenset({SCRIPTED, LOCAL, DIRECTORY, *OWN_JUDGES})
"""Backends that ask no server."""
_RAN_OUT = "model output limit was reached"
"""OpenAI's refusal where a reasoning model could not end its thought within one token: the model is there."""


Probe = tuple[str, Callable[[], Awaitable[None]]]
"""One service of a run, such as `the judge gemini-2.5-flash`, and the request that shows whether it answers.

The request raises BoundaryError where it does not, and ConfigError where a key is missing.
"""


def model_probes(
    environ: Mapping[str, str], *, policy: str = "", judges: Iterable[str] = (), teacher: str = ""
) -> list[Probe]:
    """The probes of the models that are served, by the names of the command line; a local policy has none."""
    specs = [("judge", parse_judge(name), JUDGE_KEY) for name in judges]
    specs += [("policy", parse_policy(policy), POLICY_KEY)] if policy else []
    specs += [("teacher", parse_teacher(teacher), TEACHER_KEY)] if teacher else []
    return [_model_probe(role, spec, environ, own_key) for role, spec, own_key in specs if spec.backend not in _FREE]


def _model_probe(role: str, spec: ModelSpec, environ: Mapping[str, str], own_key: str) -> Probe:
    async def ask() -> None:
        served = spec._replace(backend=GEMINI) if spec.backend == GEMINI_BATCH else spec
        model, redactor = connect_chat_model(served, environ, own_key=own_key, role=role, timeout=TIMEOUT)
        try:
            if spec.backend == VLLM:
                from rubricem_env.llm.openai_compatible import OpenAICompatibleModel

                # In token mode the chat template of the server, which it may lack, is not used.
                assert isinstance(model, OpenAICompatibleModel)
                await model.find_on_vllm()
            else:
                await model.complete(REQUEST)
        except ModelError as failure:
            if _RAN_OUT not in str(failure):
                raise redact_failure(failure, redactor) from None
        finally:
            await model.aclose()

    at = f" at {url_host(spec.url)}" if spec.url else ""
    return f"the {role} {spec.model}{at}", ask


def search_probes(tools: ToolsConfig, environ: Mapping[str, str]) -> list[Probe]:
    """The probes of google_search where this process asks engines itself; a tool server is asked when it is connected.

    Gemini is asked for one token without a search, which has a fee; another engine is asked one query.
    """
    if not tools.asks_engines:
        return []

    def probe(search: SearchConfig) -> Probe:
        if isinstance(search, GoogleSearchConfig) and search.engine == "gemini":
            spec = ModelSpec(GEMINI, search.model, search.url or "")
            return _model_probe("search engine", spec, environ, SEARCH_KEY)

        async def ask() -> None:
            async with aclosing(search_backend(search, environ)) as backend:
                await backend.answer(ToolCall(name=backend.spec.name, query="weather"))

        return f"the search engine {search.engine}", ask

    return [probe(search) for search in tools.google_search.in_order]


async def find_silent(probes: Iterable[Probe]) -> dict[str, str]:
    """What is wrong with each service that does not answer, by its name. All are asked at once."""
    timing = Timing.real()

    async def failure_of(ask: Callable[[], Awaitable[None]]) -> str:
        try:
            await call_with_retry(ask, doing="ask", error=ModelError, policy=RETRY, timing=timing)
        except (BoundaryError, UsageError) as failure:
            return " ".join(str(failure).split())
        return ""

    questions = list(probes)
    failures = await asyncio.gather(*(failure_of(ask) for _, ask in questions))
    return {what: failure for (what, _), failure in zip(questions, failures, strict=True) if failure}


async def require_answers(probes: Iterable[Probe]) -> None:
    """Raise ModelError, in one sentence, where a service of the run does not answer."""
    silent = await find_silent(probes)
    if silent:
        said = "; ".join(f"{what}: {failure.rstrip('.?')}" for what, failure in silent.items())
        raise ModelError(
            f"a first request of one token failed, so nothing was started: {said}. Correct the name, the address or "
            "the key, or skip this request with --no-probe, or probe=false in a config."
        )
