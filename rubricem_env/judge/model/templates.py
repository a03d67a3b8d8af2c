"""The system prompts of the judge, made from the files in `prompts/`.

The scale reaches a prompt from its constants, and the stages from their set, as variables of its template.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import NamedTuple

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.inputs import package_text, read_prompt_texts, refuse_placeholders
from rubricem_env.domain.scaffold import StageForm
from rubricem_env.domain.scale import FULL_SCORE, list_partial_scores, list_scores
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageGuide, StageSet
from rubricem_env.judge.model.proposed_rubrics import DESCRIPTION_WORDS, TITLE_WORDS, WEIGHTS, stage_keys

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
    stages: tuple[str, ...]
    """The stages that they speak of."""
    repair: Template
    """What is added to a scoring request whose reply left out indices."""

    @property
    def hashes(self) -> dict[str, str]:
        """The digest of each prompt, which the results of its calls carry."""
        return {name: digest(text) for name, text in {**self.systems, REPAIR: self.repair.template}.items()}

    def repair_request(self, missing: Iterable[int]) -> str:
        """What is added to a scoring request whose reply left out these indices."""
        return self.repair.substitute(_VARIABLES, missing=", ".join(map(str, missing)))


_NUMBERS = ("one stage", "two stages", "three stages", "four stages", "five stages", "six stages", "seven stages")
_OWN_CRITERIA = Template(package_text("rubricem_env.judge.model", "prompts", "own_criteria.md"))
"""What is said of the section in which an agent writes criteria of its own."""


def stage_words(stage_set: StageSet) -> dict[str, str]:
    """What a set puts into the judge's prompts."""
    names, guides = stage_set.scaffold.names, stage_set.guides
    guided = tuple(zip(names, guides, strict=True))
    own = stage_set.own_criteria
    parent = next(
        (form.name for form in stage_set.scaffold.stages if form.block and own in _sections(stage_set, form)), ""
    )
    article = "an" if stage_set.agent[:1].lower() in "aeiou" else "a"
    return {
        "agent": stage_set.agent,
        "an_agent": f"{article} {stage_set.agent}",
        "number_of_stages": (*_NUMBERS, "eight stages")[len(names) - 1],
        "contents": "\n".join(f"- {name}: {guide.contents}" for name, guide in guided),
        "questions": "\n".join(
            f"- {name.replace('_', ' ').capitalize()}: {guide.question} {guide.dimensions}".rstrip()
            for name, guide in guided
        ),
        "extents": "\n".join(f"- Stage {name}: {guide.extent}" for name, guide in guided),
        "earlier_stages": _earlier(names[:-1]),
        "targets": _targets(guided),
        "fields": ", ".join(f"`{key}` ({stage})" for stage, key in stage_keys(names).items()),
        "own_criteria": f"{_OWN_CRITERIA.substitute(tag=own, stage=parent)}\n" if own else "",
        "own_is_not": f" The agent's own `<{own}>` is not." if own else "",
    }


def _sections(stage_set: StageSet, form: StageForm) -> tuple[str, ...]:
    return stage_set.scaffold.sections.get(form.block or "", ())


def _earlier(names: Sequence[str]) -> str:
    if not names:
        return "nothing, because the answer is the only stage"
    return f"the stages {_listed(names)}" if len(names) > 1 else f"the stage {names[0]}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _targets(guided: Sequence[tuple[str, StageGuide]]) -> str:
    """How many criteria are asked for: of stages with one number together, and of the last."""
    earlier: dict[str, list[str]] = {}
    for name, guide in guided[:-1]:
        earlier.setdefault(guide.target, []).append(name)
    parts = [
        f"{target} for {'each of ' if len(names) > 1 else ''}{_listed(names)}" for target, names in earlier.items()
    ]
    last, guide = guided[-1]
    whole = ", ".join(parts) + (", and " if parts else "") + f"{guide.target} for the {last}"
    return whole.replace(" for", " criteria for", 1)


def _filled(texts: Mapping[str, str], stage_set: StageSet) -> JudgePrompts:
    variables = {**_VARIABLES, **stage_words(stage_set)}
    systems = {name: Template(texts[name]).substitute(variables) for name in PURPOSES}
    return JudgePrompts(systems, stage_set.scaffold.names, Template(texts[REPAIR]))


_SHIPPED_TEXTS = {
    name: package_text("rubricem_env.judge.model", "prompts", f"{name}.md") for name in (*PURPOSES, REPAIR)
}
SHIPPED_PROMPTS = _filled(_SHIPPED_TEXTS, DEEP_RESEARCH)


def read_judge_prompts(folder: Path | None, stage_set: StageSet = DEEP_RESEARCH) -> JudgePrompts:
    """The prompts of a folder, which has one of each of ours, with the same placeholders; None is ours.

    Raises:
        ConfigError: a prompt is missing, cannot be read, or has other placeholders.
    """
    if folder is None:
        return _filled(_SHIPPED_TEXTS, stage_set)
    shipped = str(resources.files("rubricem_env.judge.model").joinpath("prompts"))
    texts = read_prompt_texts(folder, tuple(_SHIPPED_TEXTS), shipped=shipped)
    for name, text in texts.items():
        own, where = Template(text), f"the prompt {folder / name}.md"
        if not own.is_valid():
            raise ConfigError(f"{where} has a $ that begins no placeholder; write $$ for the sign itself.")
        # A prompt of a user's own may write out what the stages are.
        of_stages = stage_words(stage_set).keys()
        wanted = {*Template(_SHIPPED_TEXTS[name]).get_identifiers()} - of_stages
        refuse_placeholders(where, {*own.get_identifiers()} - of_stages, wanted, sign="${}")
    return _filled(texts, stage_set)
