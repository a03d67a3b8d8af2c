"""Refuses to resume a run with other settings or samples."""

import re
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import validating
from rubricem_records.runs.run_settings import flatten_settings

_FIELDS = TypeAdapter(dict[str, Any])


def refuse_other_run(folder: Path, saved: str, here: str) -> None:
    """Refuse what was written with other settings or samples; the sentence names those that differ.

    Raises:
        UsageError: it was; a FileFormatError where its settings cannot be read.
    """
    if saved == here:
        return
    with validating(f"{folder} holds damaged settings", "Restore them, or use another folder for `out`."):
        before = _settings_in(saved)
        now = _settings_in(here)
    differing = [
        f"{name} was {before.get(name, 'not set')} and is {now.get(name, 'not set')}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    ]
    raise UsageError(
        f"{folder} belongs to a run with other settings or samples: {'; '.join(differing)}. Resuming would mix the "
        "two: put the settings back, or use another folder for `out`."
    )


def _settings_in(identity: str) -> dict[str, str]:
    """The settings of an identity by name: a JSON object, or `name=value` pairs."""
    if identity.startswith("{"):
        return flatten_settings(_FIELDS.validate_json(identity))
    return dict(re.findall(r"(\w+)=([^\s,()]+)", identity))
