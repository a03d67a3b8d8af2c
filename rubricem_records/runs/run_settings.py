"""The settings of a run, nested in its folder and flat for a table."""

import json
from collections.abc import Mapping
from typing import Any

SETTINGS_FILE = "config.json"
"""The settings of the run, as its last start had them."""


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings under dotted names, each value as JSON writes it."""
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= flatten_settings(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = json.dumps(value, ensure_ascii=False)
    return flat
