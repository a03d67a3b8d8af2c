"""The faults of the scripted expert, and which of them one trace has."""

from typing import NamedTuple

import numpy as np

from rubricem_env.domain.base import Frozen, UnitScore
from rubricem_env.world.draws import open_trace, pick, shuffled
from rubricem_env.world.needs import Need
from rubricem_env.world.questions import Question
from rubricem_env.world.vocabulary import CAUSES, DOMAINS, FIRST_WORDS, SECOND_WORDS

INVENTED_VALUES = 20


class Faults(Frozen):
    """The probability of each fault in a trace, drawn independently; the default is an expert without faults."""

    skip_need: UnitScore = 0.0
    """Leaves out one need, from the plan to the answer; nothing where the question has only one."""
    repeat_query: UnitScore = 0.0
    """Makes its first search a second time."""
    trust_stale: UnitScore = 0.0
    """Takes the first wrong value that a shown page offers for a need; nothing where no page has one."""
    claim_unfound: UnitScore = 0.0
    """Does not search for its last fact and states an invented value, with the citation of a page that lacks it."""
    forget_citation: UnitScore = 0.0
    """States its first claim without a source. An exact answer cites nothing anyway."""
    miss_convention: UnitScore = 0.0
    """Neither searches for the convention of the domain nor follows it."""


class Slips(NamedTuple):
    """The faults of one trace; the default is none."""

    skipped: str = ""
    """The id of the need that is left out."""
    unfounded: str = ""
    """The id of the need whose value is invented."""
    inventions: tuple[str, ...] = ()
    """Candidates for the invented value; the first that no page has shown is used."""
    repeats_query: bool = False
    trusts_stale: bool = False
    forgets_citation: bool = False
    misses_convention: bool = False


def draw_slips(question: Question, faults: Faults, *, seed: int, world: str = "") -> Slips:
    """The faults of the trace for this question, world and seed: the same on every machine."""
    rng = open_trace(seed, question=question.id, world=world)
    # Every chance is drawn, so that turning one knob leaves the other faults as they were.
    chances = (rng.random() < chance for chance in faults.model_dump().values())
    skips, repeats, trusts, claims, forgets, misses = chances
    used = {name for need in question.truth.needs for name in need.depends_on}
    skippable = [need for need in question.truth.needs if need.id not in used and len(question.truth.needs) > 1]
    skipped = pick(rng, skippable).id if skippable and skips else ""
    facts = [need for need in question.truth.needs if need.kind != "verdict" and need.id != skipped]
    return Slips(
        skipped=skipped,
        unfounded=facts[-1].id if claims else "",
        inventions=_inventions(facts[-1], rng) if claims else (),
        repeats_query=repeats,
        trusts_stale=trusts,
        forgets_citation=forgets,
        misses_convention=misses and bool(question.truth.implicit_needs),
    )


def _inventions(need: Need, rng: np.random.Generator) -> tuple[str, ...]:
    """Values of the same kind, none of them right."""
    if need.kind == "cause":
        values = list(CAUSES)
    elif need.kind == "link":
        values = [f"{pick(rng, FIRST_WORDS)} {pick(rng, SECOND_WORDS)}" for _ in range(INVENTED_VALUES)]
    else:
        attribute = next(a for domain in DOMAINS for a in domain.attributes if a.name == need.attribute)
        steps = range(attribute.low, attribute.high + 1, attribute.step)
        values = [f"{number} {attribute.unit}" for number in steps]
    return tuple(value for value in shuffled(rng, values) if value != need.value)[:INVENTED_VALUES]
