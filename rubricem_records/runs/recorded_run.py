"""Reads a training run's folder: its settings, its log and its recipe."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import FileFormatError
from rubricem_records.rollouts.run_record import StageNames
from rubricem_records.runs.recipes import KNOWN, Recipe
from rubricem_records.runs.run_log import RunLog, read_log
from rubricem_records.runs.run_settings import SETTINGS_FILE

_NAMES: TypeAdapter[tuple[str, ...]] = TypeAdapter(StageNames)


class RecordedRun(NamedTuple):
    """A run's folder, read."""

    folder: Path
    settings: dict[str, Any]
    """Empty where the folder has none."""
    log: RunLog

    @property
    def recipe(self) -> str | None:
        """Its name in the ablation."""
        recipe = self._known_recipe
        return recipe.name if recipe else None

    @property
    def title(self) -> str:
        recipe = self._known_recipe
        return recipe.title if recipe else "a training run"

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of its stages as the log has them; those of deep research where it has no others."""
        judged = [name for line in self.log.steps[-1:] for name in line.judged]
        held_out = [name for line in self.log.evaluations[-1:] for name in line.held_out]
        names = tuple(dict.fromkeys([*judged, *held_out]))
        try:
            return STAGES if {*names} <= {*STAGES} else _NAMES.validate_python(names)
        except ValidationError:
            return STAGES

    @property
    def _known_recipe(self) -> Recipe | None:
        wanted = (self.settings.get("credit"), self.settings.get("meta_policy"))
        plain = (recipe for recipe in KNOWN if not recipe.more)
        return next((recipe for recipe in plain if (recipe.credit, recipe.meta_policy) == wanted), None)


def read_run(folder: Path) -> RecordedRun:
    """A run's log and settings.

    Raises:
        FileFormatError: the folder holds no run, or its settings are no JSON object.
    """
    log = read_log(folder)
    path = folder / SETTINGS_FILE
    try:
        written = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        # Once more, because a lone surrogate or a deeper nesting could not be served as JSON.
        settings = from_json(json.dumps(written, ensure_ascii=False).encode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError) as cause:
        raise FileFormatError(
            f"{path} cannot be read as JSON: {cause}. Start the run's command again to write it anew."
        ) from cause
    if not isinstance(settings, dict):
        raise FileFormatError(f"{path} holds no JSON object. Start the run's command again to write it anew.")
    return RecordedRun(folder, settings, log)
