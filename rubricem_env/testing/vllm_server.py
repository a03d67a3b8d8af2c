"""The dialect of `vllm serve` in tokens, as one ASGI app: ids in, ids and log-probabilities out of a tokenizer and a draw.

`draw_from(model)` answers with a real model; `recite(...)` with given ids. Only what token mode asks for is there.
"""

import json
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rubricem_env.testing.servers import Receive, Send, live, read_body

Body = Mapping[str, Any]


class SampledToken(NamedTuple):
    """One token of an answer."""

    id: int
    logprob: float
    top: float
    """The log-probability of the likeliest token at its place."""


class Draw(Protocol):
    """Gives tokens after a request's prompt for as long as it is asked."""

    def __call__(self, body: Body) -> Iterator[SampledToken]: ...


class VllmQuirks(NamedTuple):
    """What a server may do otherwise."""

    gives_ids: bool = True
    owner: str = "vllm"
    prompt_surplus: int = 0
    """Tokens that it says to have read beyond those that were sent."""
    breaks_after: tuple[int, ...] = ()
    """After how many tokens the first streams break off, one after the other."""


class VllmServer:
    """`GET models`, `POST tokenize` and `POST completions`, streamed or whole."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        draw: Draw,
        *,
        max_length: int = 4_096,
        quirks: VllmQuirks | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._draw = draw
        self._max_length = max_length
        self._quirks = quirks or VllmQuirks()
        self._breaks = list(self._quirks.breaks_after)
        self.asked: list[Body] = []
        """The completions that were asked for."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
            return
        content = await read_body(receive)
        body = json.loads(content) if content else {}
        if scope["path"].endswith("/models"):
            model = {"id": "m", "owned_by": self._quirks.owner, "max_model_len": self._max_length}
            await _send(send, "application/json", [json.dumps({"data": [model]})])
        elif scope["path"] == "/tokenize":
            ids = self._tokenizer.encode(body["prompt"], add_special_tokens=False)
            await _send(send, "application/json", [json.dumps({"tokens": ids})])
        else:
            self.asked.append(body)
            await self._complete(body, send)

    async def _complete(self, body: Body, send: Send) -> None:
        events = [json.dumps(event) for event in self._events(body)]
        if not body.get("stream"):
            await _send(send, "application/json", events[:1])
            return
        broken = self._breaks.pop(0) if self._breaks else None
        sent = events[:broken] if broken is not None else [*events, "[DONE]"]
        await _send(send, "text/event-stream", [f"data: {event}\n\n" for event in sent])

    def _events(self, body: Body) -> Iterator[Mapping[str, Any]]:
        """One event for each token, as vLLM streams where it is not hurried."""
        text = ""
        for count, drawn in enumerate(self._draw(body), 1):
            is_end = drawn.id == self._tokenizer.eos_token_id
            piece = "" if is_end else str(self._tokenizer.decode([drawn.id]))
            text += piece
            stop = next((string for string in body.get("stop", ()) if string in text), None)
            is_last = is_end or stop is not None
            finish = "stop" if is_last else "length" if count == body["max_tokens"] else None
            yield self._event(body, piece, drawn=drawn, count=count, ending=(finish, stop))
            if finish is not None:
                return

    def _event(
        self, body: Body, piece: str, *, drawn: SampledToken, count: int, ending: tuple[str | None, str | None]
    ) -> Mapping[str, Any]:
        logprobs = {"token_logprobs": [drawn.logprob], "top_logprobs": [{"likeliest": drawn.top}]}
        choice: dict[str, Any] = {"text": piece, "finish_reason": ending[0], "stop_reason": ending[1]}
        if self._quirks.gives_ids:
            choice |= {"token_ids": [drawn.id], "logprobs": logprobs}
        read = len(body["prompt"]) + self._quirks.prompt_surplus
        return {"choices": [choice], "usage": {"prompt_tokens": read, "completion_tokens": count}}


def draw_from(model: Qwen3ForCausalLM, *, is_raw: bool = False) -> Draw:
    """Sample from a real model; `is_raw` gives log-probabilities from before the temperature, vLLM's own default."""

    def draw(body: Body) -> Iterator[SampledToken]:
        generator = torch.Generator().manual_seed(int(body.get("seed", 0)))
        ids = list(body["prompt"])
        while True:
            with torch.inference_mode():
                logits = model(torch.tensor([ids])).logits[0, -1].float()
            scaled = torch.log_softmax(logits / (body["temperature"] or 1.0), dim=-1)
            said = torch.log_softmax(logits, dim=-1) if is_raw else scaled
            greedy = body["temperature"] == 0
            chosen = int(scaled.argmax() if greedy else torch.multinomial(scaled.exp(), 1, generator=generator))
            ids.append(chosen)
            yield SampledToken(chosen, float(said[chosen]), float(said.max()))

    return draw


def recite(*turns: Sequence[int]) -> Draw:
    """Given ids, one sequence for each request, the last one again and again; each with log-probability -0.5."""
    left = list(turns)

    def draw(body: Body) -> Iterator[SampledToken]:
        yield from (SampledToken(token_id, -0.5, -0.5) for token_id in (left.pop(0) if len(left) > 1 else left[0]))

    return draw


async def _send(send: Send, kind: str, parts: Sequence[str]) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind.encode())]})
    for part in parts:
        await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})
