"""The policy over veRL's sampling engines, and the episodes of one rollout worker: references, episode, then credit.

The policy makes a single call of veRL's `LLMServerClient`: nothing here needs veRL.
"""

import asyncio
import os
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.local import load_tokenizer
from rubricem_agent.policy.tokens import PolicyTokenizer, TokenConversation, TokenTurn
from rubricem_agent.prompting import agent_prompt, read_agent_prompts, table_specs
from rubricem_agent.rollout.run import Attempt, RolloutContext, run_episode
from rubricem_agent.wiring.on_ray import limits_of
from rubricem_agent.wiring.tools import open_tools
from rubricem_env.concurrency import derive_seed
from rubricem_env.domain.errors import ModelError, RubricEMError, boundary
from rubricem_env.domain.trajectory import ToolCall, ToolResult, ToolStatus
from rubricem_env.env.episode import Episode
from rubricem_env.llm.usage import Usage
from rubricem_env.tools.base import LocalToolbox, Tool, Toolbox
from rubricem_env.tools.spec import GOOGLE_SEARCH, SNIPPET_SEARCH
from rubricem_records.rollouts.rollouts import Rollout, RolloutTrajectory
from rubricem_records.rollouts.sampling import Sampling

from .rows import ScheduledQuery, episode_rows
from .settings import VerlSettings

AWAY = 8
"""Failures of a search engine in a row, over all episodes of a process, after which it counts as away."""


class EnginePolicy:
    """The policy of one episode, or of all reflections. It remembers which weights have sampled.

    `client` is veRL's `LLMServerClient`: `generate` routes a request to an engine, and in the asynchronous modes
    resumes it after an update of the weights.
    """

    name = "verl"

    def __init__(self, client: Any, tokenizer: PolicyTokenizer, *, max_length: int, is_seeded: bool = False) -> None:
        """`is_seeded`: the engine draws the same tokens again for the same seed, weights and text."""
        self.is_seeded = is_seeded
        self.tokenizer = tokenizer
        self.client = client
        self.max_length = max_length
        self.seen_versions: set[int] = set()
        self._encoded: tuple[Opening, list[int]] | None = None
        """The latest opening: all candidates of a reflection share one, of thousands of tokens."""

    def versions(self, default: int) -> tuple[int, int]:
        """The first and the last weights that sampled, as veRL's steps; `default` twice before the first token."""
        return min(self.seen_versions, default=default), max(self.seen_versions, default=default)

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TokenConversation:
        return _EngineConversation(
            self, opening, temperature=sampling.temperature, seed=seed if self.is_seeded else None
        )

    def encode_opening(self, opening: Opening) -> list[int]:
        """The ids of an opening, which are made once for calls that follow each other."""
        if self._encoded is None or self._encoded[0] != opening:
            self._encoded = (opening, self.tokenizer.encode_opening(opening))
        return self._encoded[1]

    def count_tokens(self, text: str) -> int:
        return self.tokenizer.count(text)

    async def aclose(self) -> None:
        return None


class _EngineConversation(TokenConversation):
    """A conversation whose request id leads to the same server each time, so that its prefix cache is warm."""

    def __init__(self, policy: EnginePolicy, opening: Opening, *, temperature: float, seed: int | None) -> None:
        super().__init__(
            policy.tokenizer, policy.encode_opening(opening), max_length=policy.max_length, scaffold=opening.scaffold
        )
        self._stops = opening.stops
        self._policy = policy
        self._temperature = temperature
        self._seed = seed
        self._request_id = uuid.uuid4().hex

    async def draw(self, ids: Sequence[int], turn: TokenTurn, *, max_tokens: int) -> Usage:
        """Sample a turn. A stop string inside a thought does not end it, so another request follows."""
        calls = 0
        while turn.end is None and len(turn.ids) < max_tokens:
            calls += 1
            await self._continue_turn([*ids, *turn.ids], turn, max_tokens=max_tokens - len(turn.ids))
        return Usage(calls=calls, input_tokens=len(ids), output_tokens=len(turn.ids))

    async def _continue_turn(self, prompt: list[int], turn: TokenTurn, *, max_tokens: int) -> None:
        """Add the tokens of one request; those after the end of the turn are dropped."""
        params = {
            "temperature": self._temperature,
            "top_p": 1.0,
            "top_k": -1,
            "max_tokens": max_tokens,
            "logprobs": True,
            "stop": list(self._stops),
            "include_stop_str_in_output": True,
        }
        if self._seed is not None:
            # Of the place in the text: a turn that new weights interrupt goes on by other numbers.
            params["seed"] = derive_seed(self._seed, len(prompt))
        with boundary(ModelError, "get a turn from the sampling engine"):
            reply = await self._policy.client.generate(self._request_id, prompt_ids=prompt, sampling_params=params)
        versions = (reply.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps"))
        self._policy.seen_versions.update(int(version) for version in versions if version is not None)
        logprobs = reply.log_probs or []
        if len(logprobs) != len(reply.token_ids):
            raise ModelError(
                f"the sampling engine gave {len(reply.token_ids)} tokens and {len(logprobs)} log-probabilities; set "
                "actor_rollout_ref.rollout.calculate_log_probs to true."
            )
        if not reply.token_ids and not turn.ids:
            raise ModelError("the sampling engine gave a turn without a token")
        for token_id, logprob in zip(reply.token_ids, logprobs, strict=True):
            if turn.take(token_id, logprob) is not None:
                return
        if len(reply.token_ids) < max_tokens and not turn.text.rstrip().endswith(self._stops):
            turn.end = "stopped"


class PatientSearch:
    """A search engine whose calls wait while it is away: no policy should learn to answer without it.

    `service` is Ray's handle of the judge service, which has the patience.
    """

    def __init__(self, tool: Tool, service: Any) -> None:
        self._tool, self._service = tool, service
        self.spec = tool.spec
        self._failures = 0
        self.failure = ""
        """Why the episodes of now are lost: the patience is exhausted."""

    async def call(self, call: ToolCall) -> ToolResult:
        """The engine's result; what fails until the engine is away is the policy's to read."""
        while True:
            result = await self._tool.call(call)
            if result.status not in (ToolStatus.ERROR, ToolStatus.TIMEOUT):
                if self._failures >= AWAY:
                    await self._service.search_is_back.remote()
                self._failures, self.failure = 0, ""
                return result
            self._failures += 1
            if self._failures < AWAY:
                return result
            if not await self._service.wait_for_search.remote():
                self.failure = f"{self.spec.name} was away for longer than rubricem.outage.patience: {result.message}"
                return result


class ServiceCache:
    """The tool cache of all workers on all nodes, which the judge service keeps; `service` is Ray's handle of it."""

    def __init__(self, service: Any) -> None:
        self._service = service

    async def get(self, key: str) -> str | None:
        text: str | None = await self._service.cached.remote(key)
        return text

    async def put(self, key: str, text: str) -> None:
        await self._service.cache.remote(key, text)

    async def aclose(self) -> None:
        return None


class EpisodeRunner:
    """One for each worker process.

    Its tools are opened at the first episode and stay open as long as the process lives.
    """

    def __init__(
        self, settings: VerlSettings, *, model: Path, max_length: int, service: Any, is_seeded: bool = False
    ) -> None:
        """`service` is Ray's handle of the judge service; `is_seeded` is as in `EnginePolicy`."""
        self._is_seeded = is_seeded
        self._settings = settings
        stages = settings.stage_set
        self._scaffold = stages.scaffold
        self._prompts = read_agent_prompts(settings.prompts, stages)
        self._service = service
        self._searches: list[PatientSearch] = []
        self._tokenizer = load_tokenizer(model)
        self._max_length = max_length
        limits = settings.limits
        # A search engine that is away is waited for.
        patient = limits.call_seconds + settings.outage.patience
        self._limits = limits.model_copy(update={"call_seconds": patient})
        self._stack = AsyncExitStack()
        self._opening_tools = asyncio.Lock()
        self._toolbox: Toolbox | None = None

    async def run(
        self, scheduled: ScheduledQuery, *, group: str, index: int, step: int, client: Any, temperature: float
    ) -> list[dict[str, Any]]:
        """The rows of one episode, which has waited for its token advantages.

        Whatever fails on the way, the group gets its rollout. `step` is the one in which veRL requested the episode.
        """
        policy = EnginePolicy(client, self._tokenizer, max_length=self._max_length, is_seeded=self._is_seeded)
        seed = derive_seed(self._settings.seed, scheduled.step, scheduled.query.key, index) if self._is_seeded else 0
        trained_opening: list[int] | None = None
        try:
            with boundary(ModelError, "run an episode"):
                toolbox = await self._tools()
                prompt = agent_prompt(
                    toolbox.names,
                    style=self._settings.style,
                    system=self._settings.system,
                    prompts=self._prompts,
                    specs=table_specs(toolbox),
                    scaffold=self._scaffold,
                )
                plain = opening = prompt.opening(scheduled.query)
                if self._settings.is_guided(index, step=scheduled.step):
                    opening = prompt.opening(
                        scheduled.query, references=await self._service.references.remote(scheduled, index)
                    )
                sampling = Sampling(temperature=temperature, max_turn_tokens=self._settings.max_turn_tokens)
                rollout = await run_episode(
                    Attempt(scheduled.query, opening, prompt.hash, seed),
                    RolloutContext(policy, toolbox, self._limits, sampling, self._settings.context),
                )
                lost = next((search.failure for search in self._searches if search.failure), "")
                if lost:
                    rollout = rollout.model_copy(update={"failure": lost})
                if self._settings.references.distill_context:
                    trained_opening = self._tokenizer.encode_opening(plain)
        except RubricEMError as failure:
            episode = Episode(scheduled.query, scaffold=self._scaffold)
            episode.abandon()
            rollout = Rollout(
                trajectory=RolloutTrajectory(episode.trajectory), policy=EnginePolicy.name, failure=str(failure)
            )
        advantages = await self._service.submit.remote(scheduled, rollout, group=group, index=index)
        versions = policy.versions(default=step)
        return episode_rows(
            rollout, advantages, group=group, tokenizer=self._tokenizer, versions=versions, opening=trained_opening
        )

    async def _tools(self) -> Toolbox:
        """The tools. Outside the almanac the search engines among them wait for their return."""
        async with self._opening_tools:
            if self._toolbox is None:
                tools = open_tools(
                    self._settings.tools,
                    os.environ,
                    limiter_of=limits_of(self._service),
                    store=ServiceCache(self._service),
                )
                opened = await self._stack.enter_async_context(tools)
                toolbox = opened.toolbox
                if self._settings.almanac is None and isinstance(toolbox, LocalToolbox):
                    patient = {
                        name: PatientSearch(tool, self._service)
                        for name, tool in toolbox.tools.items()
                        if name in (GOOGLE_SEARCH, SNIPPET_SEARCH)
                    }
                    self._searches += patient.values()
                    toolbox = LocalToolbox(*{**toolbox.tools, **patient}.values(), redactor=opened.redactor)
                self._toolbox = toolbox
            return self._toolbox
