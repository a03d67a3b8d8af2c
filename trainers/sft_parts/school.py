"""The training questions of one almanac world, some of them with the lessons of an earlier attempt."""

from typing import NamedTuple

import numpy as np

from rubricem_agent.prompting.library import fill, read_prompt
from rubricem_env.domain.query import Query
from rubricem_env.env.offline import query_of
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.corpus import Corpus
from rubricem_env.tools.corpus_search import offline_toolbox
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.lesson import lesson_of
from rubricem_env.world.questions import Question


class School(NamedTuple):
    """Questions by task id, unique over all worlds, and where their answers are to be found."""

    alone: dict[str, Question]
    guided: dict[str, Question]
    references: dict[str, str]
    """By the source of the query: the block that goes before a guided question."""
    toolbox: Toolbox

    @classmethod
    def of_world(cls, number: int, *, guided: float, seed: int) -> "School":
        """The world of that seed; each question is guided with the given chance."""
        world = Almanac.from_seed(number)
        rng = np.random.default_rng([seed, number])
        alone: dict[str, Question] = {}
        told: dict[str, Question] = {}
        references: dict[str, str] = {}
        questions = world.questions_of("train")
        for question in questions:
            task = f"world-{number}/{question.id}"
            if rng.random() >= guided:
                alone[task] = question
                continue
            told[task] = question
            kin = [other for other in questions if _is_kin(other, question)]
            references[_source(task)] = _references(question, kin, rng=rng)
        return cls(alone, told, references, offline_toolbox(Corpus(world.documents)))

    def query(self, task: str) -> Query:
        """The query of a task; its source names the task."""
        question = self.alone.get(task) or self.guided[task]
        return query_of(question).model_copy(update={"source": _source(task)})


def _source(task: str) -> str:
    return f"almanac:{task}"


def _is_kin(other: Question, question: Question) -> bool:
    is_other = other.id != question.id
    return is_other and other.domain == question.domain and other.answer_format == question.answer_format


def _references(question: Question, kin: list[Question], *, rng: np.random.Generator) -> str:
    """The lesson of the question itself, or that of its kin, as the bank would render them."""
    is_within = not kin or rng.random() < 0.5
    lesson_from = question if is_within else kin[int(rng.integers(len(kin)))]
    prompt = read_prompt("inject_within" if is_within else "inject_cross")
    lesson = lesson_of(lesson_from)
    parts = {"rubrics": lesson.rubrics, "takeaways": lesson.takeaways}
    if not is_within:
        parts |= {"number": "1", "question": lesson_from.question}
    return fill(prompt.section("block"), {"examples": fill(prompt.section("example"), parts)})
