"""The scripted form of a reflection: what an attempt can teach the next one."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rubricem_env.domain.trajectory import AnswerFormat
from rubricem_env.world.judge import Evidence
from rubricem_env.world.needs import Need
from rubricem_env.world.questions import Question

SOUND = "Keep to the plan and name a source for each fact."
"""The takeaway of an attempt in which no fault was seen."""


class Lesson(NamedTuple):
    """The two blocks of a reflection: criteria, and what to do about them.

    Neither has a value that only a page states.
    """

    rubrics: str
    takeaways: str


def lesson_of(question: Question) -> Lesson:
    """How to do better at questions of this kind: the duties of the domain, and where to look for them."""
    if question.answer_format is AnswerFormat.EXACT:
        return Lesson("The answer gives one exact value of a current page.", "Follow each link, step by step.")
    duties = question.truth.implicit_needs
    aspects = dict.fromkeys(duty.aspect for duty in duties if duty.kind == "stated")
    closings = (f"says that all figures are {duty.value}" for duty in duties if duty.kind == "closing")
    owed = " and ".join([f"states the {aspect}" for aspect in aspects] + list(closings))
    return Lesson(f"The answer {owed}.", f"Search the reporting convention of {question.domain} and follow it.")


def lesson_after(
    question: Question, seen: Evidence, *, overlooks: Callable[[Lesson], bool] = lambda fault: False
) -> Lesson:
    """What this attempt teaches: what the answer owes, then each fault that is not overlooked."""
    # A step of a chain is named by its attribute, since its title would tell the step before.
    named = [need.attribute if need.depends_on else need.title for need in _owed(question) if need.kind != "verdict"]
    owed = ", ".join(f"the {name}" for name in named)
    faults = [fault for fault in find_faults(question, seen) if not overlooks(fault)]
    rubrics = [f"The answer states {owed}.", *(fault.rubrics for fault in faults)]
    takeaways = [fault.takeaways for fault in faults] or [SOUND]
    return Lesson(" ".join(rubrics), "\n".join(takeaways))


def find_faults(question: Question, seen: Evidence) -> Iterator[Lesson]:
    """What went wrong, the gravest first; nothing where all is well."""
    if any(trap.has_caught(seen.answer) for trap in question.truth.traps):
        yield Lesson("The answer avoids the stale value.", "Trust the ruling and the current edition.")
    if any(not need.is_met_by(seen.answer) for need in _owed(question)):
        yield Lesson("No fact that is asked for is missing.", "Search each fact by its name and copy its value.")
    if any(not duty.is_met_by(seen.answer) for duty in question.truth.implicit_needs):
        yield lesson_of(question)
    if question.answer_format is not AnswerFormat.EXACT and not seen.known_citations:
        yield Lesson("The answer cites its sources.", "Cite a snippet for each claim.")
    if seen.repeated_calls:
        yield Lesson("No search is made twice.", "Search for something new each time.")


def _owed(question: Question) -> tuple[Need, ...]:
    """The needs that the answer must state: of a chain with an exact answer, the last."""
    return question.truth.needs[-1:] if question.answer_format is AnswerFormat.EXACT else question.truth.needs
