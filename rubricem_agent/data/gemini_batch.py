"""Answers a request queue with Gemini batch jobs: one job for each request file, found again after a restart."""

from collections.abc import Callable, Iterable
from pathlib import Path

from google.genai import types
from pydantic import SecretStr

from rubricem_agent.data.base import TurnReply
from rubricem_agent.data.batch_teacher import deliver_replies, read_requests, unanswered_requests
from rubricem_env.domain.errors import ModelError, boundary
from rubricem_env.llm.chat import Effort
from rubricem_env.llm.gemini import open_client, read_candidate, read_usage, thinking_of
from rubricem_env.llm.limits.timing import Timing
from rubricem_env.llm.usage import Usage

POLL_SECONDS = 60.0
_CALL_SECONDS = 300.0
_REFUSED = frozenset({3, 400})
"""Codes of a request that the service cannot take: INVALID_ARGUMENT, as gRPC and as HTTP number it."""


class GeminiBatch:
    """Submits, waits and delivers. The job's name lies beside its request file, so that it is paid for once."""

    def __init__(
        self,
        model: str,
        key: SecretStr,
        *,
        timing: Timing,
        base_url: str | None = None,
        spend: Callable[[Usage], None] = lambda usage: None,
        effort: Effort = "",
    ) -> None:
        """`spend` hears of a job's tokens before its replies."""
        self._spend = spend
        self._thinking = thinking_of(effort)
        self.name = model
        self._timing = timing
        self._client, self._transport = open_client(key, base_url=base_url, timeout=_CALL_SECONDS)

    async def carry(self, folder: Path) -> None:
        """Wait until every request file of the folder is answered.

        Raises:
            ModelError: the service cannot be reached, or a job failed as a whole.
        """
        with boundary(ModelError, "run a Gemini batch job"):
            jobs = [(path, await self._job_name(path)) for path in unanswered_requests(folder)]
            for path, name in jobs:
                deliver_replies(path, await self._wait(path, name))

    async def aclose(self) -> None:
        await self._client.aio.aclose()
        await self._transport.aclose()

    async def _job_name(self, requests: Path) -> str:
        kept = requests.with_suffix(".job")
        if not kept.exists():
            inlined = [
                types.InlinedRequest(
                    contents=fields["prompt"],
                    metadata={"id": fields["id"]},
                    config=types.GenerateContentConfig(
                        system_instruction=fields["system"],
                        temperature=fields["temperature"],
                        max_output_tokens=fields["max_output_tokens"],
                        thinking_config=self._thinking,
                    ),
                )
                for fields in read_requests(requests)
            ]
            job = await self._client.aio.batches.create(
                model=self.name, src=inlined, config=types.CreateBatchJobConfig(display_name=requests.stem)
            )
            kept.write_text(job.name or "", encoding="utf-8")
        return kept.read_text(encoding="utf-8")

    async def _wait(self, requests: Path, name: str) -> list[TurnReply]:
        job = await self._client.aio.batches.get(name=name)
        while not job.done:
            await self._timing.sleep(POLL_SECONDS)
            job = await self._client.aio.batches.get(name=name)
        if job.dest is None or job.dest.inlined_responses is None:
            requests.with_suffix(".job").unlink()
            raise ModelError(f"the batch job {name} ended as {job.state} without replies; start again to submit anew.")
        replies = [entry.response for entry in job.dest.inlined_responses]
        used = (read_usage(reply.usage_metadata) if reply else None for reply in replies)
        self._spend(sum((usage or Usage(calls=1) for usage in used), Usage()))
        return list(_replies([fields["id"] for fields in read_requests(requests)], job.dest.inlined_responses))


def _replies(ids: list[str], responses: Iterable[types.InlinedResponse]) -> Iterable[TurnReply]:
    """Replies come in the order of the requests."""
    for name, response in zip(ids, responses, strict=True):
        said = response.response
        failure = response.error.message if response.error else ""
        error = failure or ("" if said and said.candidates else "the server refused to write this turn")
        text = read_candidate(said)[0] if said else ""
        # An error of the service is none of the model: the turn is asked again. A request that the service cannot take
        # stays refused.
        is_outage = bool(response.error and response.error.code not in _REFUSED)
        yield TurnReply(id=name, text="" if error else text, error=error, outage=is_outage)
