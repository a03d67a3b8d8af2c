"""Any served chat model as a policy: one growing assistant turn on vLLM, chat messages elsewhere."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.chat_template import FOLLOWED, ChatMessage, FollowUp, opening_messages, read_follow_up
from rubricem_agent.policy.text import Exchange, Service, TextConversation
from rubricem_env.domain.errors import ModelError
from rubricem_env.env.view import NOTHING
from rubricem_env.llm.chat import ChatRequest, Delta
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_env.llm.wires.chat_wire import ChatWire
from rubricem_env.llm.wires.wire import Message
from rubricem_env.tools.render import estimate_tokens
from rubricem_records.rollouts.sampling import Sampling

Layout = Literal["auto", "inline", "messages"]
"""`inline` continues one assistant turn, as in training, and needs vLLM to render the chat template.

`messages` sends turns as assistant messages and observations as user messages, which any server can read. `auto` is
inline on vLLM, else messages.
"""


class OpenAICompatiblePolicy:
    """A served model in text mode."""

    def __init__(self, server: OpenAICompatibleModel, service: Service, *, layout: Layout = "auto") -> None:
        self._server = server
        self._service = service
        self.name = service.name
        self._layout = layout
        self._follow_up: FollowUp | None = None
        self._has_follow_up = False
        """Whether the template was asked for it."""

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TextConversation:
        top_p = sampling.top_p if sampling.top_p < 1 else None
        request = ChatRequest("", opening.system, temperature=sampling.temperature, top_p=top_p, seed=seed % (1 << 31))
        prompt = ""

        async def stream(exchanges: Sequence[Exchange], begun: str, max_tokens: int) -> AsyncGenerator[Delta, None]:
            """Continue the turn, in the layout that the server supports."""
            nonlocal prompt
            if await self._is_inline():
                prompt = prompt or await self._render(opening_messages(opening))
                follow_up = await self._find_follow_up() if any(one.has_ended for one in exchanges) else None
                named = {"temperature": request.temperature, "top_p": request.top_p, "seed": request.seed}
                drawn = {name: value for name, value in named.items() if value is not None}
                body = {**drawn, **_continuation(prompt + _written(exchanges, follow_up) + begun, opening.stops)}
                written = self._server.stream("completions", body, max_tokens=max_tokens)
            else:
                messages = _messages(opening, exchanges)
                written = self._server.stream_chat(request._replace(max_output_tokens=max_tokens), messages)
            async with aclosing(written) as deltas:
                async for delta in deltas:
                    yield delta

        return TextConversation(stream, opening, service=self._service)

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def aclose(self) -> None:
        await self._server.aclose()

    async def _is_inline(self) -> bool:
        if self._layout == "auto":
            is_chat = isinstance(self._server.wire, ChatWire)
            self._layout = "inline" if is_chat and await self._server.find_on_vllm() is not None else "messages"
        return self._layout == "inline"

    async def _render(self, messages: Sequence[ChatMessage]) -> str:
        """The messages in the model's chat template, which the server knows."""
        written = [message._asdict() for message in messages]
        return await self._server.detokenize(
            await self._server.tokenize({"messages": written, "add_generation_prompt": True})
        )

    async def _find_follow_up(self) -> FollowUp | None:
        """What the template writes around a later message of the user; None where it refuses one."""
        if not self._has_follow_up:
            try:
                self._follow_up = read_follow_up(await self._render(FOLLOWED))
            except ModelError as refused:
                if refused.is_retryable:
                    raise
            self._has_follow_up = True
        return self._follow_up


def _written(exchanges: Sequence[Exchange], follow_up: FollowUp | None) -> str:
    """One turn of the assistant; an observation after a turn that it ended is a message of the user."""
    return "".join(
        f"{turn}{follow_up.before}{observation.strip()}{follow_up.after}"
        if follow_up and has_ended
        else turn + observation
        for turn, observation, has_ended in exchanges
    )


def _continuation(prompt: str, stops: Sequence[str]) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "add_special_tokens": False,
        "skip_special_tokens": True,
        "stop": list(stops),
        "include_stop_str_in_output": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def _messages(opening: Opening, exchanges: Sequence[Exchange]) -> list[Message]:
    messages: list[Message] = [("user", opening.user)]
    for turn, observation, _ in exchanges:
        messages.append(("assistant", turn or NOTHING))
        messages.append(("user", observation or NOTHING))
    return messages
