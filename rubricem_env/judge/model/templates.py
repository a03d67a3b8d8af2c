"""The system prompts of the judge, made from the files in `prompts/`.

The scale and the counts of rubrics reach a prompt from their constants, as variables of its template.
"""

import hashlib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import NamedTuple

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.inputs import package_text, read_prompt_texts, refuse_placeholders
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
REPAIR = "repair"
PURPOSES = (PROPOSE, SCORE, REFLECT, ADMIT)

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


def digest(text: str) -> str:
    """The start of the text's SHA-256, which identifies a prompt."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


class JudgePrompts(NamedTuple):
    """The prompts of a judge model: ours, or those of a folder of a user's own."""

    systems: Mapping[str, str]
    """The system prompt of each purpose."""
    repair: Template
    """What is added to a scoring request whose reply left out indices."""

    @property
    def hashes(self) -> dict[str, str]:
        """The digest of each prompt, which the results of its calls carry."""
        return {name: digest(text) for name, text in {**self.systems, REPAIR: self.repair.template}.items()}

    def repair_request(self, missing: Iterable[int]) -> str:
        """What is added to a scoring request whose reply left out these indices."""
        return self.repair.substitute(_VARIABLES, missing=", ".join(map(str, missing)))


def _filled(texts: Mapping[str, str]) -> JudgePrompts:
    systems = {name: Template(texts[name]).substitute(_VARIABLES) for name in PURPOSES}
    return JudgePrompts(systems, Template(texts[REPAIR]))


_SHIPPED_TEXTS = {
    name: package_text("rubricem_env.judge.model", "prompts", f"{name}.md") for name in (*PURPOSES, REPAIR)
}
SHIPPED_PROMPTS = _filled(_SHIPPED_TEXTS)


def read_judge_prompts(folder: Path | None) -> JudgePrompts:
    """The prompts of a folder, which has one of each of ours, with the same placeholders; None is ours.

    Raises:
        ConfigError: a prompt is missing, cannot be read, or has other placeholders.
    """
    if folder is None:
        return SHIPPED_PROMPTS
    shipped = str(resources.files("rubricem_env.judge.model").joinpath("prompts"))
    texts = read_prompt_texts(folder, tuple(_SHIPPED_TEXTS), shipped=shipped)
    for name, text in texts.items():
        own, where = Template(text), f"the prompt {folder / name}.md"
        if not own.is_valid():
            raise ConfigError(f"{where} has a $ that begins no placeholder; write $$ for the sign itself.")
        wanted = Template(_SHIPPED_TEXTS[name]).get_identifiers()
        refuse_placeholders(where, own.get_identifiers(), wanted, sign="${}")
    return _filled(texts)
