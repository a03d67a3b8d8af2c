"""A teacher that answers in batches: all turns of a round go out as a file of requests, replies come back as a file.

    requests-0001.jsonl   {"id": "q7.1", "system": "...", "prompt": "...", "temperature": 1.0, "max_output_tokens": 8192}
    replies-0001.jsonl    {"id": "q7.1", "text": "..."}  or  {"id": "q7.1", "error": "why there is none"}

Any batch system can write the replies. A reply file has the number of its request file and is read as soon as it
exists: write it under another name and rename it. Every request needs a reply; an unknown id is refused.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rubricem_agent.data.generate import PendingTurn, RepliesPending, TurnReply
from rubricem_agent.data.teacher import TeacherPrompts
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.trajectory import first_problem
from rubricem_env.llm.base import ChatRequest


class BatchRequestQueue:
    """The folder. It contains the whole state of an exchange, so that any run can resume it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def post(self, requests: dict[str, ChatRequest]) -> Path:
        """Write the requests as the next file; it is there whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"requests-{len(self._files('requests')) + 1:04d}.jsonl"
        lines = (json.dumps(_fields(name, request), ensure_ascii=False) + "\n" for name, request in requests.items())
        _write_whole(path, "".join(lines))
        return path

    def deliver(self, requests: Path, replies: list[TurnReply]) -> None:
        """Write the replies to a request file."""
        _write_whole(_reply_path(requests), "".join(reply.model_dump_json() + "\n" for reply in replies))

    def asked(self) -> dict[str, str]:
        """The prompts of all requests so far, by id."""
        return {
            str(line["id"]): str(line["prompt"]) for path in self._files("requests") for line in read_requests(path)
        }

    def replies(self) -> dict[str, TurnReply]:
        """All replies so far, by id.

        Raises:
            FileFormatError: a line is no reply, or answers what its request file did not ask.
        """
        found: dict[str, TurnReply] = {}
        for path in self._files("requests"):
            if _reply_path(path).exists():
                found |= _read_replies(_reply_path(path), {str(line["id"]) for line in read_requests(path)})
        return found

    def unanswered(self) -> list[Path]:
        """The request files that have no reply file."""
        return [path for path in self._files("requests") if not _reply_path(path).exists()]

    def _files(self, kind: str) -> list[Path]:
        return sorted(self.folder.glob(f"{kind}-*.jsonl"))


def read_requests(path: Path) -> list[dict[str, Any]]:
    """The requests of a file of a request queue."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def _read_replies(path: Path, asked: set[str]) -> dict[str, TurnReply]:
    replies: dict[str, TurnReply] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            reply = TurnReply.model_validate_json(line)
        except ValidationError as cause:
            raise FileFormatError(f"{path}, line {number} is no reply: {first_problem(cause)}") from cause
        if reply.id not in asked:
            raise FileFormatError(f"{path}, line {number} answers {reply.id!r}, which was not asked; remove the line.")
        replies[reply.id] = reply
    missing = sorted(asked - set(replies))
    if missing:
        raise FileFormatError(
            f"{path} answers {len(replies)} of {len(asked)} requests; {missing[0]!r} is missing. "
            'Add it, or {"id": ..., "error": "why there is none"} in its place.'
        )
    return replies


def _reply_path(requests: Path) -> Path:
    return requests.with_name(requests.name.replace("requests-", "replies-"))


def _fields(name: str, request: ChatRequest) -> dict[str, Any]:
    return {
        "id": name,
        "system": request.system,
        "prompt": request.prompt,
        "temperature": request.temperature,
        "max_output_tokens": request.max_output_tokens,
    }


def _write_whole(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.rename(path)


class BatchTeacher:
    """Posts each turn once, however often the run is started, and reads what has come in."""

    def __init__(
        self,
        queue: BatchRequestQueue,
        *,
        prompts: TeacherPrompts,
        name: str = "directory",
        carry: Callable[[BatchRequestQueue], Awaitable[None]] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`carry` answers the unanswered request files; without it, people or another batch system answer them."""
        self.name = name
        self._queue = queue
        self._prompts = prompts
        self._carry = carry
        self._close = close

    async def write(self, pending: Sequence[PendingTurn]) -> Sequence[TurnReply]:
        asked = self._queue.asked()
        self._refuse_other_questions(pending, asked)
        new = {turn.id: self._prompts.request(turn) for turn in pending if turn.id not in asked}
        if new:
            self._queue.post(new)
        if self._carry is not None:
            await self._carry(self._queue)
        replies = self._queue.replies()
        if any(turn.id not in replies for turn in pending):
            waiting = ", ".join(path.name for path in self._queue.unanswered())
            raise RepliesPending(
                f"{waiting} in {self._queue.folder} waits for its replies. Start the same command again when they are there."
            )
        return [replies[turn.id] for turn in pending]

    async def aclose(self) -> None:
        if self._close is not None:
            await self._close()

    def _refuse_other_questions(self, pending: Sequence[PendingTurn], asked: Mapping[str, str]) -> None:
        """A first prompt holds the question and nothing that happens later: under its id it is the same each time."""
        for turn in pending:
            if turn.round == 1 and asked.get(turn.id, wanted := self._prompts.request(turn).prompt) != wanted:
                raise ConfigError(
                    f"{self._queue.folder} has asked for {turn.id!r} with another prompt, and would be answered with "
                    "what was said to that one. Give these questions ids of their own, or use another folder."
                )
