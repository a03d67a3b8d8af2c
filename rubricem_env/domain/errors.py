"""The project's exceptions, and `boundary`, which converts foreign exceptions.

    RubricEMError
    ├── UsageError            the caller's mistake: raised at once, says what to do
    │   ├── ConfigError       a setting is unknown, missing or out of range
    │   ├── FileFormatError   a file is missing or malformed
    │   └── MissingExtraError an optional dependency is not installed
    └── BoundaryError         an outside failure: becomes a value on the trajectory, never a score
        ├── ToolError         a search or a page fetch failed
        ├── ModelError        a policy or judge model could not be reached, or gave an unusable reply
        └── JudgeError        a stage could not be scored

Catch `UsageError` to show a person one sentence. Catch `BoundaryError` to record a failure.
"""


class RubricEMError(Exception):
    """Base of all errors raised on purpose by this project."""


class UsageError(RubricEMError, ValueError):
    """The caller made a mistake. The message names what, where, the rule, the value and what to do."""


class ConfigError(UsageError):
    """A setting is unknown, missing or out of its range."""


class FileFormatError(UsageError):
    """A file is missing, unreadable, of an unknown version, or malformed; the message says where."""


class MissingExtraError(UsageError):
    """An optional dependency is needed and not installed; the message holds the pip line."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed. Run: pip install 'rubricem[{extra}]'")


class BoundaryError(RubricEMError):
    """Something outside this process failed. Raised by `boundary`, which names what was being done."""

    def __init__(
        self,
        message: str = "",
        *,
        is_retryable: bool = False,
        retry_after: float | None = None,
        is_rate_limited: bool = False,
    ) -> None:
        """`is_retryable`: the same request may succeed, after `retry_after` seconds where the server named them.

        `is_rate_limited`: the server refused the request for its rate alone; waiting for it is no failed try.
        """
        super().__init__(message)
        self.is_retryable = is_retryable
        self.retry_after = retry_after
        self.is_rate_limited = is_rate_limited


class ToolError(BoundaryError):
    """A tool backend failed."""


class ModelError(BoundaryError):
    """A model server failed, or its reply was unusable."""


class JudgeError(BoundaryError):
    """A judgement could not be obtained."""


class boundary:
    """Convert any exception inside into `error`, with what was being done; our own errors pass unchanged.

    Cancellation and interrupts are not `Exception`s and pass as well. A class, since each call of a tool crosses
    several, and a generator takes three times as long.
    """

    def __init__(self, error: type[BoundaryError], doing: str) -> None:
        self._error = error
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, Exception) and not isinstance(cause, RubricEMError):
            reason = str(cause).strip() or "no detail given"
            raise self._error(f"could not {self._doing}: {type(cause).__name__}: {reason}") from cause
