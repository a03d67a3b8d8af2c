"""An OpenEnv server with one session per episode, and a typed client. This is also our server mode.

    app = research_app(make_env_spec(), token="...")          # module.py; serve with: uvicorn module:app
    async with ResearchClient("http://host:8000", token="...") as client:
        result = await client.reset(query_key=key)
        result = await client.step(ResearchAction(text=turn))

The stage vector is in the last observation; the reward is a scalar.
"""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import numpy as np
from pydantic import Field

from rubricem_env.adapters.session import EpisodeSession, require_tested
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.env.spec import EnvSpec

require_tested("openenv", ">=0.10,<0.11", extra="openenv")

from openenv.core import EnvClient  # type: ignore[import-not-found,unused-ignore]  # noqa: E402 - after its version
from openenv.core.client_types import StepResult  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from openenv.core.env_server import create_app  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from openenv.core.env_server.interfaces import Environment  # type: ignore[import-not-found,unused-ignore]  # noqa: E402
from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Callable[..., Awaitable[Any]], Callable[..., Awaitable[Any]]], Awaitable[None]]


class ResearchAction(Action):  # type: ignore[misc,unused-ignore]  # OpenEnv is absent where types are checked
    """One turn of the policy."""

    text: str


class ResearchObservation(Observation):  # type: ignore[misc,unused-ignore]
    """What the policy reads next; when `done`, the stage vector as well as the scalar reward."""

    text: str
    query_key: str
    system: str = ""
    """The first observation's: the spec's system message, for the policy to read before the text."""
    stage_scores: dict[str, float | None] = Field(default_factory=dict)
    unscored: dict[str, str] = Field(default_factory=dict)
    """Why a stage has no score."""
    facts: dict[str, str | int] = Field(default_factory=dict)
    view: list[dict[str, str]] = Field(default_factory=list, exclude_if=lambda view: not view)
    """The messages that the policy reads next, where the spec bounds its context; its system message is not among them.
    """


class ResearchEnvironment(Environment[ResearchAction, ResearchObservation, State]):  # type: ignore[misc,unused-ignore]
    """One session. Asynchronous only: all sessions of a server share its event loop, and with it the tools."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env_spec: EnvSpec) -> None:
        super().__init__()
        self._env_spec = env_spec
        self._session: EpisodeSession | None = None
        self._state = State()

    async def reset_async(
        self, seed: int | None = None, episode_id: str | None = None, *, query_key: str | None = None
    ) -> ResearchObservation:
        """Begin on the question of that key, or on one drawn with the seed."""
        queries = self._env_spec.queries
        if query_key is None:  # A generator costs as much as a turn, so it is made only where a question is drawn.
            query = queries[int(np.random.default_rng(seed).integers(len(queries)))]
        else:
            query = self._env_spec.query(query_key)
        self.close()
        self._session = EpisodeSession(self._env_spec, query, seed=seed)
        self._state = State(episode_id=episode_id, query_key=query.key)
        view = self._session.info.get("view", [])
        return ResearchObservation(
            text=self._session.prompt, query_key=query.key, system=self._env_spec.system, view=view
        )

    async def step_async(self, action: ResearchAction, timeout_s: float | None = None) -> ResearchObservation:
        """Take a turn. The server ignores `timeout_s`: tools have their own time limits, and the client has one.

        Raises:
            UsageError: this session has no episode, for example after a lost connection.
        """
        if self._session is None:
            raise UsageError("this session has no episode; a lost connection ends it. Call reset() to begin another.")
        step = await self._session.step(action.text)
        self._state.step_count += 1
        facts = step.info
        view = facts.pop("view", [])
        observed = {"view": view, "done": step.is_over, "reward": step.reward, "text": step.observation, "facts": facts}
        if step.is_over:
            stages = self._env_spec.stage_set.scaffold.names
            observed["stage_scores"] = {stage: facts.pop(f"score_{stage}", None) for stage in stages}
            reasons = {stage: facts.pop(f"unscored_{stage}", None) for stage in stages}
            observed["unscored"] = {name: reason for name, reason in reasons.items() if reason is not None}
        return ResearchObservation(query_key=self._session.query.key, **observed)

    def reset(self, *_: Any, **__: Any) -> ResearchObservation:
        """Refused: another thread would give the tools a second event loop."""
        raise UsageError("this environment is asynchronous; await reset_async().")

    def step(self, *_: Any, **__: Any) -> ResearchObservation:
        """Refused, like `reset`."""
        raise UsageError("this environment is asynchronous; await step_async().")

    @property
    def state(self) -> State:
        return self._state

    def close(self) -> None:
        """Abandon an unfinished episode: the client has left, or resets."""
        if self._session is not None:
            self._session.abandon()
            self._session = None


class ResearchClient(EnvClient[ResearchAction, ResearchObservation, State]):  # type: ignore[misc,unused-ignore]
    """One episode at a time. A receive time-out ends the session: a late reply is never read as the next one."""

    def __init__(self, base_url: str, *, token: str | None = None, timeout: float = 600.0) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        super().__init__(base_url, message_timeout_s=timeout, headers=headers)

    def _step_payload(self, action: ResearchAction) -> dict[str, Any]:
        return {"text": action.text}

    def _parse_result(self, payload: dict[str, Any]) -> StepResult:
        facts = {"done": payload.get("done", False), "reward": payload.get("reward")}
        observation = ResearchObservation(**payload["observation"], **facts)
        return StepResult(observation=observation, **facts)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


def research_app(
    env_spec: EnvSpec, *, max_sessions: int = 256, session_timeout: float = 1_800.0, token: str | None = None
) -> Asgi:
    """The server as an ASGI app. A session that is idle for `session_timeout` seconds is closed.

    With a `token`, every request except /health needs the header "Authorization: Bearer ...".

    Raises:
        ConfigError: the token is empty.
    """
    if token == "":
        raise ConfigError(
            "the server's token is empty, which would refuse everybody; give one, or None to accept everybody."
        )
    limits = ConcurrencyConfig(max_concurrent_envs=max_sessions, session_timeout=session_timeout)
    app: Asgi = create_app(
        lambda: ResearchEnvironment(env_spec),
        ResearchAction,
        ResearchObservation,
        env_name="rubricem",
        concurrency_config=limits,
    )
    return app if token is None else _guarded(app, token)


def _guarded(app: Asgi, token: str) -> Asgi:
    expected = f"Bearer {token}".encode()

    async def guard(scope: Scope, receive: Callable[..., Awaitable[Any]], send: Callable[..., Awaitable[Any]]) -> None:
        if scope["type"] not in ("http", "websocket") or scope["path"] == "/health":
            await app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if hmac.compare_digest(given, expected):
            await app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 4401, "reason": "no valid token"})
        else:
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"no valid token\n"})

    return guard
