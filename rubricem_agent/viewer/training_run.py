"""A training run's folder, read: its settings and its log."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.learn.metrics_log import SETTINGS_FILE, RunLog, read_log
from rubricem_agent.learn.recipes import RECIPES
from rubricem_env.domain.errors import FileFormatError


class Run(NamedTuple):
    """A run's folder, read."""

    folder: Path
    settings: dict[str, Any]
    """Empty where the folder has none."""
    log: RunLog

    @property
    def recipe(self) -> str | None:
        """Its name in the ablation."""
        key = (self.settings.get("credit"), self.settings.get("meta_policy"))
        return next((one.name for one in RECIPES if (one.credit, one.meta_policy) == key), None)

    @property
    def title(self) -> str:
        return next((one.title for one in RECIPES if one.name == self.recipe), "a training run")


def read_run(folder: Path) -> Run:
    """A run's log and settings.

    Raises:
        FileFormatError: the folder holds no run, or its settings are no JSON object.
    """
    log = read_log(folder)
    path = folder / SETTINGS_FILE
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as cause:
        raise FileFormatError(
            f"{path} is not JSON: {cause}. Start the run's command again to write it anew."
        ) from cause
    if not isinstance(settings, dict):
        raise FileFormatError(f"{path} holds no JSON object. Start the run's command again to write it anew.")
    return Run(folder, settings, log)
