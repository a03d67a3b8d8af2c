"""RACE over many tasks: the plain mean of every row that has no error, and the official result text."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from rubricem_agent.evals.race_reply import DIMENSIONS

COLUMNS = (*DIMENSIONS, "overall_score")


class RaceMeans(NamedTuple):
    """Means over the scored rows, 0..1; None where no row was scored. Reported times 100."""

    means: dict[str, float] | None
    n_scored: int

    def result_text(self) -> str | None:
        """The content of the official race_result.txt, which is not written where nothing was scored."""
        if self.means is None:
            return None
        return "".join(f"{column.replace('_', ' ').title()}: {mean:.4f}\n" for column, mean in self.means.items())


def aggregate(rows: Sequence[Mapping[str, JsonValue]]) -> RaceMeans:
    """Rows with an `error` leave the mean; a column that a scored row lacks counts 0 there."""
    scored = [row for row in rows if "error" not in row]
    if not scored:
        return RaceMeans(None, 0)
    means = {column: sum(_value(row, column) for row in scored) / len(scored) for column in COLUMNS}
    return RaceMeans(means, len(scored))


def strict_mean(rows: Sequence[Mapping[str, JsonValue]]) -> float:
    """Strict mode: the overall score with every failed row as 0; 0 for no rows at all."""
    return sum(_value(row, "overall_score") for row in rows if "error" not in row) / len(rows) if rows else 0.0


def _value(row: Mapping[str, JsonValue], column: str) -> float:
    value = row.get(column, 0)
    return float(value) if isinstance(value, int | float) else 0.0
