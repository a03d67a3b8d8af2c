"""A backend's failure with its status, and the result that it becomes."""

from rubricem_env.domain.errors import BoundaryError, ToolError
from rubricem_env.domain.tool import ToolResult, ToolStatus
from rubricem_env.llm.retry import RETRYABLE_STATUS, RetryAdvice

_STATUSES = {
    408: ToolStatus.TIMEOUT,
    429: ToolStatus.RATE_LIMITED,
    503: ToolStatus.ERROR,
    504: ToolStatus.TIMEOUT,
}
_MAX_MESSAGE = 300


class ToolFailure(ToolError):
    """What went wrong with a backend, whether it may pass, and when to come back."""

    def __init__(
        self,
        message: str,
        *,
        status: ToolStatus = ToolStatus.ERROR,
        passes: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.passes = passes
        self.retry_after = retry_after


def http_failure(backend: str, status: int, *, said: str = "", retry_after: float | None = None) -> ToolFailure:
    """The failure for an HTTP status that is no success."""
    detail = f" ({said.strip()[:_MAX_MESSAGE]})" if said.strip() else ""
    meaning = {401: "it refuses the key", 403: "it refuses the key or the request", 429: "too many requests"}.get(
        status
    )
    reason = f"{meaning} ({status})" if meaning else f"it answered {status}"
    return ToolFailure(
        f"{backend} gave no results: {reason}{detail}.",
        status=_STATUSES.get(status, ToolStatus.ERROR),
        passes=status in RETRYABLE_STATUS,
        retry_after=retry_after,
    )


def advise_on_tool_failure(failure: BoundaryError) -> RetryAdvice | None:
    """Try again after what may pass, and after nothing else."""
    return RetryAdvice(failure.retry_after) if isinstance(failure, ToolFailure) and failure.passes else None


def result_of_failure(failure: BoundaryError) -> ToolResult:
    """The typed result of a failed call, in one sentence."""
    status = ToolStatus.ERROR
    if isinstance(failure, ToolFailure):
        status = failure.status
    elif isinstance(failure.__cause__, TimeoutError):
        return ToolResult(status=ToolStatus.TIMEOUT, message="the tool did not answer in time; try again or go on.")
    return ToolResult(status=status, message=_one_line(str(failure)))


def malformed_reply(backend: str) -> ToolFailure:
    """The backend answered with success and with what is not its format."""
    return ToolFailure(f"{backend} answered with what is not its format; the reply cannot be read.", passes=True)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE else line[: _MAX_MESSAGE - 1] + "\u2026"
