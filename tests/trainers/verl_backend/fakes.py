"""Sampling engines of veRL: one that writes given turns, and one that fails; and Ray's handle of an actor."""

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from rubricem_agent.policy.tokens import PolicyTokenizer
from trainers.verl_backend.row_queue import Tag


class FakeReply(NamedTuple):
    """What veRL's `TokenOutput` says."""

    token_ids: list[int]
    log_probs: list[float] | None
    extra_fields: dict[str, Any]


class FakeClient:
    """Gives the next of its texts to each request, at most as many tokens as are asked for."""

    def __init__(self, tokenizer: PolicyTokenizer, texts: Sequence[str], *, versions: Sequence[int] = (0,)) -> None:
        self._tokenizer = tokenizer
        self._texts = list(texts)
        self._versions = list(versions)
        self.prompts: list[list[int]] = []
        self.params: list[dict[str, Any]] = []
        self.has_logprobs = True

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> FakeReply:
        self.prompts.append(prompt_ids)
        self.params.append(sampling_params)
        number = len(self.prompts) - 1
        text = self._texts[min(number, len(self._texts) - 1)]
        version = self._versions[min(number, len(self._versions) - 1)]
        ids = self._tokenizer.encode_foreign(text)[: sampling_params["max_tokens"]]
        logprobs = [-0.5] * len(ids) if self.has_logprobs else None
        return FakeReply(ids, logprobs, {"min_global_steps": version, "max_global_steps": version})


class BrokenClient:
    """An engine that is gone."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> FakeReply:
        raise ConnectionError("the actor died")


class FakeHandle:
    """Ray's handle of an actor that stands in this process."""

    def __init__(self, actor: object) -> None:
        self._actor = actor

    def __getattr__(self, method: str) -> SimpleNamespace:
        def remote(*given: Any, **named: Any) -> Any:
            """As in Ray, the call is made whether or not it is waited for."""
            result = getattr(self._actor, method)(*given, **named)
            return asyncio.ensure_future(result) if asyncio.iscoroutine(result) else result

        return SimpleNamespace(remote=remote)


class FakeQueue:
    """A `RowQueue` in memory; its batch is the list of keys."""

    def __init__(self) -> None:
        self._tags: dict[str, dict[str, Tag]] = {}
        self._rows: dict[tuple[str, str], Mapping[str, Any]] = {}

    def tags(self, partition: str) -> Mapping[str, Tag]:
        return dict(self._tags.get(partition, {}))

    def read(self, partition: str, keys: Sequence[str], fields: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        rows = [self._rows[partition, key] for key in keys]
        return {name: [row[name] for row in rows] for name in fields if all(name in row for row in rows)}

    def put(self, partition: str, tags: Mapping[str, Tag], rows: Sequence[Mapping[str, Any]] = ()) -> list[str]:
        self._tags.setdefault(partition, {}).update(tags)
        self._rows |= {(partition, key): row for key, row in zip(tags, rows, strict=False)}
        return list(tags)

    def clear(self, partition: str, keys: Sequence[str]) -> None:
        for key in keys:
            del self._tags[partition][key]
            self._rows.pop((partition, key), None)
