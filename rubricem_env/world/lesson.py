"""What an attempt at an almanac question can teach the next one, in two lines: the scripted form of a reflection."""

from typing import NamedTuple

from rubricem_env.domain.query import AnswerFormat
from rubricem_env.world.questions import Question


class Lesson(NamedTuple):
    """The two blocks of a reflection. Neither holds a value that only a page may tell."""

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
