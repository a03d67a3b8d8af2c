"""A folder through which any batch system can be the teacher: requests go out as files, replies come in as files.

    requests-0001.jsonl   {"id": "q7.1", "system": "...", "prompt": "...", "temperature": 1.0, "max_output_tokens": 8192}
    replies-0001.jsonl    {"id": "q7.1", "text": "..."}  or  {"id": "q7.1", "error": "why there is none"}

A reply file has the number of its request file and is read once it is there: write it under another name and rename
it. Every request must be answered; a reply to what was not asked is refused.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rubricem_agent.data.turns import TurnReply
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import first_problem
from rubricem_env.llm.base import ChatRequest


class Mailbox:
    """The folder. It holds all state of an exchange, so that any run can go on with it."""

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
    """The requests of a file that a mailbox has written."""
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
