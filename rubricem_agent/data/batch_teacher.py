"""A teacher that answers in batches: all turns of a round go out as a file of requests, replies come back as a file.

    requests-0001.jsonl   {"id": "q7.1", "system": "...", "prompt": "...", "temperature": 1, "max_output_tokens": 8192}
    replies-0001.jsonl    {"id": "q7.1", "text": "..."}  or  {"id": "q7.1", "error": "why there is none"}

Any batch system can write the replies. A reply file has the number of its request file and is read as soon as it
exists: write it under another name and rename it. Every request needs a reply; an unknown id is refused. A reply with
"outage": true says that the server failed: the next run asks again, in a new file.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rubricem_agent.data.base import RepliesPending, Trace, TurnReply
from rubricem_agent.data.teacher import TeacherPrompts
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.inputs import read_lines, validating
from rubricem_env.llm.chat import ChatRequest
from rubricem_records.files.atomic_files import write_atomic


def post_requests(folder: Path, requests: Mapping[str, ChatRequest]) -> Path:
    """Write the requests by id as the next file of the folder; it is there whole or not at all."""
    path = folder / f"requests-{len(_request_files(folder)) + 1:04d}.jsonl"
    posted = ("system", "prompt", "temperature", "max_output_tokens")
    lines = ({"id": name, **{key: getattr(one, key) for key in posted}} for name, one in requests.items())
    write_atomic(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return path


def deliver_replies(requests: Path, replies: Iterable[TurnReply]) -> None:
    """Write the replies to a request file."""
    write_atomic(_reply_path(requests), "".join(reply.model_dump_json() + "\n" for reply in replies))


def unanswered_requests(folder: Path) -> list[Path]:
    """The request files that have no reply file."""
    return [path for path in _request_files(folder) if not _reply_path(path).exists()]


def read_requests(path: Path) -> list[dict[str, Any]]:
    """The requests of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def read_replies(folder: Path) -> dict[str, TurnReply]:
    """All replies so far, by id.

    Raises:
        FileFormatError: a line is no reply, or answers what its request file did not ask.
    """
    replies: dict[str, TurnReply] = {}
    for path in _request_files(folder):
        if _reply_path(path).exists():
            replies |= _read_replies(_reply_path(path), {str(line["id"]) for line in read_requests(path)})
    return replies


def _request_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("requests-*.jsonl"))


def _read_replies(path: Path, asked: set[str]) -> dict[str, TurnReply]:
    replies: dict[str, TurnReply] = {}
    for where, line in read_lines(path, "a file of replies"):
        with validating(f"{where} is no reply"):
            reply = TurnReply.model_validate_json(line)
        if reply.id not in asked:
            raise FileFormatError(f"{where} answers {reply.id!r}, which was not asked; remove the line.")
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


class BatchTeacher:
    """Posts each turn once, however often the run is started, and reads what has come in. A lost turn is posted again.

    The folder contains the whole state of the exchange, so that any run can resume it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        prompts: TeacherPrompts,
        name: str = "directory",
        carry: Callable[[Path], Awaitable[None]] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
        affordable: Callable[[Sequence[ChatRequest]], int] = len,
    ) -> None:
        """`carry` answers the unanswered request files; without it, people or another batch system answer them.

        `affordable` says how many of the requests, from the first, may be posted as one file before their cost is
        known.
        """
        self._affordable = affordable
        self.name = name
        self._folder = folder
        self._prompts = prompts
        self._carry = carry
        self._close = close
        self._posted_again: set[str] = set()
        """By this run, which posts a lost turn again once: a service that stays down ends the run."""

    async def write(self, pending: Sequence[Trace]) -> Sequence[TurnReply]:
        requests = (line for path in _request_files(self._folder) for line in read_requests(path))
        prompts = {str(line["id"]): str(line["prompt"]) for line in requests}
        for trace in pending:
            # A first prompt holds the question and nothing that happens later: under its id it is the same each time.
            if trace.round == 1 and prompts.get(trace.next_id, wanted := self._prompts.request(trace).prompt) != wanted:
                raise ConfigError(
                    f"{self._folder} has asked for {trace.next_id!r} with another prompt, and would be answered with "
                    "what was said to that one. Give these questions ids of their own, or use another folder."
                )
        # Those whose last reply was an outage, unless they are posted again already, by this run or another.
        outages = {name for name, reply in read_replies(self._folder).items() if reply.outage}
        lost = {trace.next_id for trace in pending} & outages - self._waiting() - self._posted_again
        new = {
            trace.next_id: self._prompts.request(trace)
            for trace in pending
            if trace.next_id not in prompts or trace.next_id in lost
        }
        if self._carry is not None:
            await self._carry(self._folder)
        while new:
            posted = list(new)[: self._affordable(list(new.values()))]
            post_requests(self._folder, {name: new.pop(name) for name in posted})
            self._posted_again |= lost.intersection(posted)
            if self._carry is not None:
                await self._carry(self._folder)
        replies = read_replies(self._folder)
        unanswered = self._waiting()
        if any(trace.next_id not in replies or trace.next_id in unanswered for trace in pending):
            waiting = ", ".join(path.name for path in unanswered_requests(self._folder))
            raise RepliesPending(
                f"{waiting} in {self._folder} waits for its replies. Start the same command again when they are there."
            )
        return [replies[trace.next_id] for trace in pending]

    def _waiting(self) -> set[str]:
        """The turns in request files without replies."""
        return {str(line["id"]) for path in unanswered_requests(self._folder) for line in read_requests(path)}

    async def aclose(self) -> None:
        if self._close is not None:
            await self._close()
