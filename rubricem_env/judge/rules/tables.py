"""The tables of `rules.json`."""

import json
from collections.abc import Mapping
from typing import Any

from rubricem_env.domain.inputs import package_text

RULE_TABLES: Mapping[str, Any] = json.loads(package_text("rubricem_env.judge.rules", "rules.json"))
"""The rules' rubrics by title, and words that carry no content of a question or a criterion."""
