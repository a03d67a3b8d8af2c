"""Any server that speaks OpenAI's API as a policy: vLLM with the whole episode in one assistant turn, others in messages."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from typing import Any

from rubricem_agent.policy.base import Opening, Sampling
from rubricem_agent.policy.openai_server import LEAST_TOKENS, OpenAIServer, Request
from rubricem_agent.policy.openai_wire import Detokenized, Tokenized
from rubricem_agent.policy.text_conversation import Delta, Exchange, Service, TextConversation
from rubricem_env.env.episode import estimate_tokens

STOP_STRINGS = ("</call_tool>", "</answer>")


class Layout(StrEnum):
    """How an episode is put to the server."""

    AUTO = "auto"
    """Inline on vLLM, in messages elsewhere."""
    INLINE = "inline"
    """One assistant turn that is continued, as in training. Needs vLLM, which renders the chat template."""
    MESSAGES = "messages"
    """Turns as assistant messages, observations as user messages; any server can do it."""


class OpenAICompatiblePolicy:
    """A served model in text mode."""

    def __init__(self, server: OpenAIServer, service: Service, *, layout: Layout = Layout.AUTO) -> None:
        self._server = server
        self._service = service
        self._layout = layout

    @property
    def name(self) -> str:
        return self._service.name

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> TextConversation:
        settings = {"temperature": sampling.temperature, "seed": seed % (1 << 31)}
        thread = _Thread(self._server, opening, settings=settings, layout=self._layout)
        return TextConversation(thread, opening, service=self._service)

    def count_tokens(self, text: str) -> int:
        return estimate_tokens(text)

    async def aclose(self) -> None:
        await self._server.aclose()


class _Thread:
    """One conversation as this server sees it."""

    def __init__(self, server: OpenAIServer, opening: Opening, *, settings: Mapping[str, Any], layout: Layout) -> None:
        self._server = server
        self._opening = opening
        self._settings = settings
        self._layout = layout
        self._prompt: str | None = None

    async def stream(
        self, exchanges: Sequence[Exchange], begun: str, *, max_tokens: int
    ) -> AsyncGenerator[Delta, None]:
        """Continue in the layout that the server can do."""
        if self._layout is Layout.AUTO:
            is_vllm = (await self._server.models()).is_vllm(self._server.model)
            self._layout = Layout.INLINE if is_vllm else Layout.MESSAGES
        if self._layout is Layout.INLINE:
            request = await self._inline(exchanges, begun)
        else:
            request = self._in_messages(exchanges)
        async with aclosing(self._server.stream(request._replace(max_tokens=max_tokens))) as deltas:
            async for delta in deltas:
                yield delta

    async def _inline(self, exchanges: Sequence[Exchange], begun: str) -> Request:
        if self._prompt is None:
            self._prompt = await self._render()
        body = {
            **self._settings,
            "prompt": self._prompt + "".join(part for exchange in exchanges for part in exchange) + begun,
            "add_special_tokens": False,
            "skip_special_tokens": True,
            "stop": list(STOP_STRINGS),
            "include_stop_str_in_output": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
        return Request("completions", body, LEAST_TOKENS)

    async def _render(self) -> str:
        """The opening in the model's own chat template, by the server that knows it."""
        asked = {"messages": self._messages(), "add_generation_prompt": True}
        tokens = (await self._server.ask("../tokenize", asked, reply=Tokenized)).tokens
        return (await self._server.ask("../detokenize", {"tokens": tokens}, reply=Detokenized)).prompt

    def _in_messages(self, exchanges: Sequence[Exchange]) -> Request:
        messages = self._messages()
        for exchange in exchanges:
            messages.append({"role": "assistant", "content": exchange.text or "(nothing)"})
            messages.append({"role": "user", "content": exchange.observation or "(nothing)"})
        body = {**self._settings, "messages": messages, "stream_options": {"include_usage": True}}
        return Request("chat/completions", body, LEAST_TOKENS)

    def _messages(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self._opening.system}, {"role": "user", "content": self._opening.user}]
