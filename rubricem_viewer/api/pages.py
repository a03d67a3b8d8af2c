"""A page of a list."""

from typing import Generic, TypeVar

from rubricem_env.domain.base import Frozen

RowT = TypeVar("RowT")


class Page(Frozen, Generic[RowT]):
    """A page of a list."""

    total: int
    """In the run."""
    matched: int
    page: int
    """From 1."""
    size: int
    rows: tuple[RowT, ...]
