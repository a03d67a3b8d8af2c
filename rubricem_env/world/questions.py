"""The questions of a world, and how they are chosen."""

from collections.abc import Sequence

import numpy as np

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.documents import Library
from rubricem_env.world.draws import open_stream, shuffled
from rubricem_env.world.entities import Entity
from rubricem_env.world.inquiries import MAKERS, Inquiry
from rubricem_env.world.names import SPLITS, Split, split_sizes
from rubricem_env.world.needs import ImplicitNeed, Truth, closing_convention, stated_convention, traps_for
from rubricem_env.world.vocabulary import DOMAINS

FORMATS = tuple(AnswerFormat)
"""The formats in the order in which they take turns."""


class PersistentRubric(Frozen):
    """A criterion of the answer stage that holds for the whole training; a negative weight marks a fault."""

    title: str
    description: str
    weight: float


class Question(Frozen):
    """What is asked and, apart from it, what is true. Only ``question`` may reach a policy."""

    id: str
    question: str
    answer_format: AnswerFormat
    domain: str
    split: Split
    truth: Truth
    rubrics: tuple[PersistentRubric, ...]


def rubrics_of(truth: Truth) -> tuple[PersistentRubric, ...]:
    """The answer rubrics of a truth: +1 for each need, +0.5 for each convention, -1 for each trap."""
    rows = [(need.title, f"The answer says: {need.sentence}", 1.0) for need in truth.needs]
    rows += [(duty.title, f"The answer says: {duty.sentence}", 0.5) for duty in truth.implicit_needs]
    rows += [(f"{t.kind} value", f"The answer gives the wrong value {t.wrong_value}.", -1.0) for t in truth.traps]
    return tuple(PersistentRubric(title=title, description=text, weight=weight) for title, text, weight in rows)


def ask_questions(seed: int, library: Library, *, questions_per_domain: int) -> tuple[Question, ...]:
    """The questions of every split and domain, a third of each format; no two have the same words.

    Refuses a number that the entities cannot fill.
    """
    sizes = split_sizes(questions_per_domain, "questions_per_domain")
    rng = open_stream(seed, "questions")
    questions: list[Question] = []
    for split in SPLITS:
        for turn, domain in enumerate(DOMAINS):
            cohort = [e for e in library.entities.values() if e.domain == domain.name and e.split == split]
            chosen = _choose(rng, library, cohort, count=sizes[split], turn=turn)
            questions += [
                _question(library, inquiry, answer_format, number=number)
                for number, (answer_format, inquiry) in enumerate(chosen, start=1)
            ]
    return tuple(questions)


def _choose(
    rng: np.random.Generator, library: Library, cohort: Sequence[Entity], *, count: int, turn: int
) -> list[tuple[AnswerFormat, Inquiry]]:
    """Formats in turn and, within a format, kinds in turn; an empty kind is skipped."""
    pools = {name: [shuffled(rng, make(library, cohort)) for make in makers] for name, makers in MAKERS.items()}
    chosen: list[tuple[AnswerFormat, Inquiry]] = []
    for number in range(count):
        answer_format = FORMATS[number % len(FORMATS)]
        kinds = pools[answer_format]
        start = number // len(FORMATS) + turn
        pool = next((p for p in (kinds[(start + step) % len(kinds)] for step in range(len(kinds))) if p), None)
        if pool is None:
            raise UsageError(
                f"{cohort[0].split} {cohort[0].domain} have no {answer_format} question left after {number} of "
                f"{count}; each question is asked once. Use more entities_per_domain or fewer questions_per_domain."
            )
        chosen.append((answer_format, pool.pop()))
    return chosen


def _question(library: Library, inquiry: Inquiry, answer_format: AnswerFormat, *, number: int) -> Question:
    entity = inquiry.named[0]
    truth = _truth(library, inquiry, answer_format)
    return Question(
        id=f"{entity.split}-{entity.domain}-{number:02d}",
        question=inquiry.text,
        answer_format=answer_format,
        domain=entity.domain,
        split=entity.split,
        truth=truth,
        rubrics=rubrics_of(truth),
    )


def _truth(library: Library, inquiry: Inquiry, answer_format: AnswerFormat) -> Truth:
    """Conventions apply to short and long answers, the closing words to long ones only."""
    implicit: list[ImplicitNeed] = []
    if answer_format is not AnswerFormat.EXACT:
        implicit += [stated_convention(library, entity, number=n) for n, entity in enumerate(inquiry.named, start=1)]
    if answer_format is AnswerFormat.LONG:
        implicit.append(closing_convention(library, inquiry.named[0].domain, number=len(implicit) + 1))
    sentences = [need.sentence for need in inquiry.needs] + [need.sentence for need in implicit]
    subjects = [entity.id for entity in inquiry.named] + [need.subject_id for need in inquiry.needs]
    return Truth(
        kind=inquiry.kind,
        entity_ids=tuple(dict.fromkeys(subjects)),
        needs=inquiry.needs,
        implicit_needs=tuple(implicit),
        traps=traps_for(library, inquiry.needs),
        reference=inquiry.needs[-1].value if answer_format is AnswerFormat.EXACT else " ".join(sentences),
    )
