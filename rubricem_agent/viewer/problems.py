"""Why a question to the viewer has no answer. Each becomes a status and one sentence."""

from rubricem_env.domain.errors import UsageError


class NotThereError(UsageError):
    """There is no such run, trajectory, question, item or example."""


class NotAllowedError(UsageError):
    """It is there and cannot be changed here."""
