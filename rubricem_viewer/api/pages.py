"""A page of a list."""

from typing import Generic, TypeVar

from rubricem_env.domain.base import Frozen

RowT = TypeVar("RowT")


class Page(Frozen, Generic[RowT]):
    """A page of a list."""

    total: int
    """The number of rows in the run."""
    matched: int
    page: int
    """The number of the page, from 1."""
    size: int
    rows: tuple[RowT, ...]
