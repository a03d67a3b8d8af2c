"""What a scripted expert may do wrong: how likely each fault is, and which of them one trace shows."""

import hashlib
from typing import NamedTuple

import numpy as np

from rubricem_env.domain.base import Frozen, UnitScore
from rubricem_env.world.draws import pick, shuffled
from rubricem_env.world.questions import Question
from rubricem_env.world.truth import Need
from rubricem_env.world.vocabulary import CAUSES, DOMAINS, FIRST_WORDS, SECOND_WORDS

INVENTED_VALUES = 20


class Faults(Frozen):
    """How likely each fault is in a trace, each drawn on its own; the default is an expert without fault."""

    skip_need: UnitScore = 0.0
    """Leaves one need out, from the plan to the answer. A question with a single need has none to leave out."""
    repeat_query: UnitScore = 0.0
    """Makes its first search a second time."""
    trust_stale: UnitScore = 0.0
    """Takes the first wrong value that a shown page offers for a need; nothing where no page offers one."""
    claim_unfound: UnitScore = 0.0
    """Does not search for its last fact and states an invented value, with the citation of a page that lacks it."""
    forget_citation: UnitScore = 0.0
    """States its first claim without a source. An exact answer cites nothing anyway."""
    miss_convention: UnitScore = 0.0
    """Does not look for the convention of the domain, and so does not follow it."""


class Slips(NamedTuple):
    """The faults of one trace; the default is none."""

    skipped: str = ""
    """The id of the need that is left out."""
    unfounded: str = ""
    """The id of the need whose value is invented."""
    inventions: tuple[str, ...] = ()
    """Values to invent from, of which the first is taken that no page has shown."""
    repeats_query: bool = False
    trusts_stale: bool = False
    forgets_citation: bool = False
    misses_convention: bool = False


def draw_slips(question: Question, faults: Faults, *, seed: int) -> Slips:
    """The faults of the trace for this question and seed: the same on every machine."""
    key = int.from_bytes(hashlib.sha256(question.id.encode()).digest()[:8])
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, key])))
    # Every chance is drawn, so that turning one knob leaves the other faults as they were.
    chances = (rng.random() < chance for chance in faults.model_dump().values())
    skips, repeats, trusts, claims, forgets, misses = chances
    skippable = _skippable(question.truth.needs)
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


def _skippable(needs: tuple[Need, ...]) -> list[Need]:
    """Those on which no other depends; none where it is the only one."""
    used = {name for need in needs for name in need.depends_on}
    return [need for need in needs if need.id not in used] if len(needs) > 1 else []


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
