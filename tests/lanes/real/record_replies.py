"""Record a small model's replies as judge and as policy, from any chat server; one that is recorded is not asked again.

python -m tests.lanes.real.record_replies MODEL URL --name NAME --server SERVER --count 25 --out weak_replies.jsonl
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from rubricem_agent.prompting import agent_prompt
from rubricem_env.llm.chat import ChatReply, ChatRequest
from rubricem_env.llm.openai_compatible import OpenAICompatibleModel
from rubricem_records.files.line_file import LineFile
from tests.rubricem_env.judge.model.weak_cases import (
    MAX_TOKENS,
    PURPOSES,
    QUERIES,
    Outcome,
    RecordedReply,
    Reply,
    ask,
    play,
)


class Listening:
    """A model whose replies are kept."""

    def __init__(self, model: OpenAICompatibleModel) -> None:
        self.name = model.name
        self.heard: list[ChatReply] = []
        self._model = model

    async def complete(self, request: ChatRequest) -> ChatReply:
        """The model's reply."""
        self.heard.append(await self._model.complete(request))
        return self.heard[-1]

    async def aclose(self) -> None:
        await self._model.aclose()


async def record(model: Listening, purpose: str, number: int) -> Outcome:
    """One request of this purpose, and what was made of the reply."""
    if purpose != "turn":
        return await ask(model, purpose, number)
    opening = agent_prompt(("google_search", "snippet_search")).opening(QUERIES[number % len(QUERIES)])
    request = ChatRequest(opening.user, opening.system, temperature=0.7, seed=number, max_output_tokens=MAX_TOKENS)
    return play((await model.complete(request)).text, number)


def recorded(path: Path) -> Iterator[RecordedReply]:
    """The replies of a file."""
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            yield RecordedReply.model_validate_json(line)


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lanes.real.record_replies")
    parser.add_argument("model")
    parser.add_argument("url")
    parser.add_argument("--name", required=True, help="what the model is called in the file")
    parser.add_argument("--server", required=True)
    parser.add_argument("--count", type=int, default=25, help="replies of each purpose")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    model, file = Listening(OpenAICompatibleModel(chosen.model, chosen.url)), LineFile(chosen.out)
    done = {(each.model, each.purpose, each.number) for each in recorded(chosen.out)}
    for purpose in PURPOSES:  # Requests of one purpose begin alike, and servers keep the last prompt.
        for number in range(chosen.count):
            if (chosen.name, purpose, number) in done:
                continue
            model.heard = []
            outcome = await record(model, purpose, number)
            if not model.heard:
                sys.exit(f"the server gave no reply: {outcome.said}")
            line = RecordedReply(
                model=chosen.name,
                server=chosen.server,
                purpose=purpose,
                number=number,
                replies=tuple(Reply(text=reply.text, finish=reply.finish) for reply in model.heard),
                outcome=outcome.said,
            )
            file.append([line.model_dump_json().encode()])
            sys.stdout.write(f"{purpose} {number}: {outcome.said[:150]}\n")
            sys.stdout.flush()
    await model.aclose()


if __name__ == "__main__":
    asyncio.run(main())
