"""The published rows that a report prints beside ours, in percent, with their sources and flags."""

import json
from importlib import resources

from pydantic import JsonValue


def reference_rows() -> dict[str, JsonValue]:
    """All tables by name. Each has a `source`; most have `columns`, and `rows` by system with null for unpublished."""
    text = resources.files("rubricem_agent.evals").joinpath("reference_rows.json").read_text(encoding="utf-8")
    tables: dict[str, JsonValue] = json.loads(text)
    return tables
