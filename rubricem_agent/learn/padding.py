"""Rows of different lengths as one array, padded on the right."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", bound=np.generic)


def pad_rows(rows: Sequence[npt.ArrayLike], fill: float, *, dtype: type[Number]) -> npt.NDArray[Number]:
    """Rows of one number a token as one array, padded on the right."""
    arrays = [np.asarray(row, dtype=dtype) for row in rows]
    filled = np.full((len(arrays), max(map(len, arrays), default=0)), fill, dtype=dtype)
    for row, values in zip(filled, arrays, strict=True):
        row[: len(values)] = values
    return filled
