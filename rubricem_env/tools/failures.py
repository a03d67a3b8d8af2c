"""The typed failures of tools, and the results that they become."""

import re

from rubricem_env.domain.errors import BoundaryError, ToolError
from rubricem_env.domain.trajectory import ToolResult, ToolStatus
from rubricem_env.llm.limits.retry import RETRYABLE_STATUS

_STATUSES = {408: ToolStatus.TIMEOUT, 429: ToolStatus.RATE_LIMITED, 504: ToolStatus.TIMEOUT}
_MEANINGS = {401: "it refuses the key", 403: "it refuses the key or the request", 429: "too many requests"}
_OUT_OF_MONEY = frozenset({402, 432, 433})
"""432 and 433 are Tavily's."""
_OUT_OF_MONEY_WORDS = re.compile("not enough credits|insufficient budget|quota_limited", re.IGNORECASE)
"""The words of the refusals of Serper (400), OpenAlex and Brave (429)."""
MAX_MESSAGE = 300


class ToolFailure(ToolError):
    """A failure of a backend whose reason is known."""

    def __init__(
        self,
        message: str,
        *,
        status: ToolStatus = ToolStatus.ERROR,
        is_retryable: bool = False,
        retry_after: float | None = None,
        is_out_of_money: bool = False,
    ) -> None:
        super().__init__(message, is_retryable=is_retryable, retry_after=retry_after)
        self.status = status
        self.is_out_of_money = is_out_of_money


def http_failure(backend: str, status: int, *, said: str = "", retry_after: float | None = None) -> ToolFailure:
    """The failure for an HTTP status other than success."""
    detail = f" ({said.strip()[:200]})" if said.strip() else ""
    if status in _OUT_OF_MONEY or _OUT_OF_MONEY_WORDS.search(said):
        message = f"{backend} gave no results: its account is out of money or over its limit ({status}){detail}."
        return ToolFailure(message, is_out_of_money=True)
    reason = f"{_MEANINGS[status]} ({status})" if status in _MEANINGS else f"it answered {status}"
    return ToolFailure(
        f"{backend} gave no results: {reason}{detail}.",
        status=_STATUSES.get(status, ToolStatus.ERROR),
        is_retryable=status in RETRYABLE_STATUS,
        retry_after=retry_after,
    )


def malformed_reply(backend: str) -> ToolFailure:
    """The backend answered with success, but not in its format."""
    return ToolFailure(f"{backend} answered in an unknown format; the reply cannot be read.", is_retryable=True)


def result_of_failure(failure: BoundaryError) -> ToolResult:
    """The typed result of a failed call, in one sentence."""
    if isinstance(failure.__cause__, TimeoutError) and not isinstance(failure, ToolFailure):
        return ToolResult(status=ToolStatus.TIMEOUT, message="the tool did not answer in time; try again or continue.")
    line = " ".join(str(failure).split())
    return ToolResult(
        status=failure.status if isinstance(failure, ToolFailure) else ToolStatus.ERROR,
        message=line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "\u2026",
    )
