"""Every exception of the project, and the one place that turns foreign ones into ours.

    RubricEMError
    ├── UsageError            the caller's mistake: raised at once, says the way out
    │   ├── ConfigError       a setting is unknown, missing or out of range
    │   ├── FileFormatError   a file is not what it should be
    │   ├── OrderError        a call came before the one that it needs
    │   └── MissingExtraError an optional dependency is not installed
    └── BoundaryError         the world's failure: becomes a value on the trajectory, never a score
        ├── ToolError         a search or a page fetch failed
        ├── ModelError        a policy or judge model could not be reached, or answered rubbish
        └── JudgeError        a stage could not be scored

Catch `UsageError` to show a person one sentence; catch `BoundaryError` where a failure is data.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class RubricEMError(Exception):
    """Base of all errors raised on purpose by this project."""


class UsageError(RubricEMError, ValueError):
    """The caller asked for something that cannot be. The message names what, where, the rule, the value, the way out."""


class ConfigError(UsageError):
    """A setting is unknown, missing or out of its range."""


class FileFormatError(UsageError):
    """A file is missing, unreadable, of an unknown version, or malformed at a named place."""


class OrderError(UsageError):
    """A call came out of order, such as a step before the reset."""


class MissingExtraError(UsageError):
    """An optional dependency is needed and not installed; the message holds the pip line."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed. Run: pip install 'rubricem[{extra}]'")


class BoundaryError(RubricEMError):
    """Something outside this process failed. Raised by `boundary`, which names what was being done."""


class ToolError(BoundaryError):
    """A tool backend failed."""


class ModelError(BoundaryError):
    """A model server failed, or its reply was unusable."""


class JudgeError(BoundaryError):
    """A judgement could not be obtained."""


@contextmanager
def boundary(error: type[BoundaryError], doing: str) -> Iterator[None]:
    """Turn whatever fails inside into `error`, naming what was being done; our own errors pass unchanged.

    Cancellation and interrupts are not `Exception`s and pass as well.
    """
    try:
        yield
    except RubricEMError:
        raise
    except Exception as cause:
        reason = str(cause).strip() or "no detail given"
        raise error(f"could not {doing}: {type(cause).__name__}: {reason}") from cause
