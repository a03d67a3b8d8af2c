"""Writers behind OpenAI's API: a model server on this machine, for libraries that ask one for every turn."""

import asyncio
from collections import defaultdict, deque

from docs.adapters.writers import Writer, Writers
from rubricem_env.testing import ModelRequest, ModelServer


class _Answers:
    """Answers each conversation as one attempt; conversations are told apart by what was said in them."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers
        self._waiting: dict[tuple[str, ...], deque[Writer]] = defaultdict(deque)
        self._begun: dict[str, int] = defaultdict(int)

    async def __call__(self, request: ModelRequest) -> str:
        said = [message["content"] for message in request.body["messages"] if message["role"] == "assistant"]
        read = [message["content"] for message in request.body["messages"] if message["role"] == "user"]
        if said:
            write = self._waiting[read[0], *said].popleft()
        else:
            write = self._writers.begin(self._begun[read[0]])
            self._begun[read[0]] += 1
        text = await asyncio.to_thread(write, read[-1])
        self._waiting[read[0], *said, text].append(write)
        return text


def writer_server(writers: Writers) -> ModelServer:
    """The app, for `serve_loopback`."""
    return ModelServer(_Answers(writers))
