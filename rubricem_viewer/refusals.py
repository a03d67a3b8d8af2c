"""The errors of the viewer: what is not there, and a folder that cannot be read."""

from rubricem_env.domain.errors import BoundaryError, UsageError


class NotThereError(UsageError):
    """There is no such run, trajectory, question, item or example."""


class UnknownStageError(UsageError):
    """A request names a stage that the run does not have."""


class UnreadableRunError(BoundaryError):
    """The folder of a run holds what no release has written."""
