"""One model behind several servers."""

import time
from collections.abc import Callable, Sequence

from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.chat import ChatModel, ChatReply, ChatRequest
from rubricem_env.llm.limits.balancer import Balancer


class ModelPool:
    """One model behind several servers, chosen by a `Balancer`: a request that one of them fails goes to the next."""

    def __init__(
        self, servers: Sequence[ChatModel], *, rest: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._servers = tuple(servers)
        self.name = self._servers[0].name
        self._balancer = Balancer(len(self._servers), clock, rest)

    async def complete(self, request: ChatRequest) -> ChatReply:
        """As the model says; the failure of the last server where none answers."""
        left = set(range(len(self._servers)))
        while True:
            try:
                with self._balancer.request(left) as chosen:
                    left.remove(chosen)
                    return await self._servers[chosen].complete(request)
            except ModelError as failure:
                if not (left and failure.is_retryable):
                    raise

    async def aclose(self) -> None:
        for server in self._servers:
            await server.aclose()
