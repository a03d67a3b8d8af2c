"""The system prompts of the judge, made from the files in `prompts/`.

The scale and the counts of rubrics reach a prompt from their constants, as variables of its template.
"""

import hashlib
from collections.abc import Iterable
from string import Template

from rubricem_env.domain.inputs import package_text
from rubricem_env.domain.scale import FULL_SCORE, list_partial_scores, list_scores
from rubricem_env.judge.model.proposed_rubrics import (
    DESCRIPTION_WORDS,
    RUBRICS_PER_ANSWER,
    RUBRICS_PER_STAGE,
    TITLE_WORDS,
    WEIGHTS,
)

PROPOSE = "propose"
SCORE = "score"
REFLECT = "reflect"
ADMIT = "admit"

_VARIABLES = {
    "full_score": FULL_SCORE,
    "partial_scores": list_partial_scores(),
    "all_scores": list_scores(),
    "rubrics_per_stage": RUBRICS_PER_STAGE,
    "rubrics_per_answer": RUBRICS_PER_ANSWER,
    "title_words": TITLE_WORDS,
    "description_words": DESCRIPTION_WORDS,
    "weights": ", ".join(f"{weight} {meaning}" for weight, meaning in WEIGHTS.items()),
}


def _read_template(name: str) -> Template:
    return Template(package_text("rubricem_env.judge.model", "prompts", f"{name}.md"))


def digest(text: str) -> str:
    """The start of the text's SHA-256, which identifies a prompt."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


SYSTEM_PROMPTS = {name: _read_template(name).substitute(_VARIABLES) for name in (PROPOSE, SCORE, REFLECT, ADMIT)}
"""The system prompt of each purpose."""
PROMPT_HASHES = {name: digest(text) for name, text in SYSTEM_PROMPTS.items()}
"""The digest of each system prompt, which the results of its calls carry."""


_REPAIR = _read_template("repair")


def repair_request(missing: Iterable[int]) -> str:
    """What is added to a scoring request whose reply left out these indices."""
    return _REPAIR.substitute(_VARIABLES, missing=", ".join(map(str, missing)))
