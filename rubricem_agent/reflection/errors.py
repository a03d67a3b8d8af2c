"""What keeps a question from having a reflection."""

from rubricem_env.domain.errors import BoundaryError


class ReflectionError(BoundaryError):
    """This question gets no reflection in this step; other questions are not touched by it."""
