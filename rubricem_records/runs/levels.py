"""The held-out answers of known policies, beside which a run's curve is drawn."""

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from rubricem_env.domain.inputs import package_text

_LEVELS: Sequence[Mapping[str, Any]] = json.loads(package_text("rubricem_records.runs", "levels.json"))["levels"]
"""The held-out answers of policies beside which runs are drawn: the floor and the ceilings of a curve."""


def find_levels(settings: Mapping[str, Any]) -> dict[str, float]:
    """The held-out answers of the policies to compare a run of these settings with, by name, the lowest first."""
    wanted = (settings.get("policy"), settings.get("held_out"), settings.get("data"))
    known = [level for level in _LEVELS if (level["policy"], level["held_out"], None) == wanted]
    return {level["name"]: level["answer"] for level in sorted(known, key=itemgetter("answer"))}
