"""The published rows that a report prints beside ours, with their sources and flags."""

import json
from collections.abc import Sequence

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.inputs import package_text


class PublishedScores(Frozen):
    """One system's row, in percent by column; None where there is no number."""

    system: Text
    values: tuple[float | None, ...]
    flags: tuple[Text, ...]
    """Such as "HealthBench n=100 per DR Tulu"."""


class PublishedTable(Frozen):
    """One table, in percent."""

    source: Text
    columns: tuple[Text, ...]
    rows: tuple[PublishedScores, ...]


def published_tables(titles: Sequence[str]) -> tuple[PublishedTable, ...]:
    """The tables that have a column for one of the benchmarks."""
    rows = json.loads(package_text("rubricem_records.evaluations", "published_scores.json"))
    tables = [PublishedTable.model_validate_json(json.dumps(table)) for table in rows["tables"]]
    return tuple(table for table in tables if set(titles) & set(table.columns))
