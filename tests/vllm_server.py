"""A fake `vllm serve` in token mode, as one ASGI app: ids in, ids and log-probabilities out.

`draw_from(model)` answers with a real model, `recite(...)` with given ids. Only the requests of token mode are
supported.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rubricem_env.testing.servers import event_stream

Body = Mapping[str, Any]


SampledToken = tuple[int, float, float]
"""An id, its log-probability, and the log-probability of the likeliest token."""
Draw = Callable[[Body], Iterator[SampledToken]]
"""Draws tokens after the prompt of a request, as many as the server takes."""


class VllmServer:
    """`GET models`, `POST tokenize` and `POST completions`, streamed or whole.

    The keyword arguments make it misbehave: without ids, with another owner, with `prompt_surplus` tokens more than
    were sent, or with first streams that end after `breaks_after` tokens, one entry for each stream.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        draw: Draw,
        *,
        max_length: int = 4_096,
        gives_ids: bool = True,
        owner: str = "vllm",
        prompt_surplus: int = 0,
        breaks_after: Sequence[int] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._draw = draw
        self._max_length = max_length
        self._gives_ids = gives_ids
        self._owner = owner
        self._prompt_surplus = prompt_surplus
        self._breaks = list(breaks_after)
        self.asked: list[Body] = []
        """The bodies of the completion requests."""

        self._app = Starlette(routes=[Route("/{path:path}", self._respond, methods=["GET", "POST"])])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        content = await request.body()
        body = json.loads(content) if content else {}
        if request.url.path.endswith("/models"):
            model = {"id": "m", "owned_by": self._owner, "max_model_len": self._max_length}
            return JSONResponse({"data": [model]})
        if request.url.path == "/tokenize":
            return JSONResponse({"tokens": self._tokenizer.encode(body["prompt"], add_special_tokens=False)})
        self.asked.append(body)
        if not body.get("stream"):
            return JSONResponse(next(self._events(body)))
        events = [json.dumps(event) for event in self._events(body)]
        broken = self._breaks.pop(0) if self._breaks else None
        return event_stream(events[:broken] if broken is not None else [*events, "[DONE]"])

    def _events(self, body: Body) -> Iterator[Mapping[str, Any]]:
        """One event for each token, as an idle vLLM streams."""
        text = ""
        for count, drawn in enumerate(self._draw(body), 1):
            is_end = drawn[0] == self._tokenizer.eos_token_id
            piece = "" if is_end else str(self._tokenizer.decode([drawn[0]]))
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
        token_id, logprob, likeliest = drawn
        logprobs = {"token_logprobs": [logprob], "top_logprobs": [{"likeliest": likeliest}]}
        choice: dict[str, Any] = {"text": piece, "finish_reason": ending[0], "stop_reason": ending[1]}
        if self._gives_ids:
            choice |= {"token_ids": [token_id], "logprobs": logprobs}
        read = len(body["prompt"]) + self._prompt_surplus
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
            yield chosen, float(said[chosen]), float(said.max())

    return draw


def recite(*turns: Sequence[int]) -> Draw:
    """Given ids, one sequence for each request, then the last one again; each id with log-probability -0.5."""
    left = list(turns)

    def draw(body: Body) -> Iterator[SampledToken]:
        yield from ((token_id, -0.5, -0.5) for token_id in (left.pop(0) if len(left) > 1 else left[0]))

    return draw
