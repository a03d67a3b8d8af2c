"""The training questions of one almanac world, some of them with what the rubric bank offers on them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.data.generation import Trace
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.inject import Injector, count_roughly
from rubricem_agent.memory.retrieval import Retrieval
from rubricem_env.domain.query import Query
from rubricem_env.domain.reflection import Reflection
from rubricem_env.env.offline import query_of
from rubricem_env.tools.base import Toolbox
from rubricem_env.tools.corpus import Corpus
from rubricem_env.tools.corpus_search import offline_toolbox
from rubricem_env.world.almanac import Almanac
from rubricem_env.world.lesson import Lesson
from rubricem_env.world.questions import Question


class School(NamedTuple):
    """Questions by task id, unique over all worlds, and where their answers are to be found."""

    alone: dict[str, Question]
    guided: dict[str, Question]
    toolbox: Toolbox

    @classmethod
    def of_world(cls, number: int, *, guided: float, seed: int) -> "School":
        """The world of that seed; each question is guided with the given chance."""
        world = Almanac.from_seed(number)
        rng = np.random.default_rng([seed, number])
        alone: dict[str, Question] = {}
        told: dict[str, Question] = {}
        for question in world.questions_of("train"):
            (told if rng.random() < guided else alone)[f"world-{number}/{question.id}"] = question
        return cls(alone, told, offline_toolbox(Corpus(world.documents)))

    @property
    def questions(self) -> dict[str, Question]:
        return self.alone | self.guided

    def query(self, task: str) -> Query:
        """The query of a task; its source names the task."""
        question = self.alone.get(task) or self.guided[task]
        return query_of(question).model_copy(update={"source": source_of(task)})


def source_of(task: str) -> str:
    """The source of a task's query, by which its references are known."""
    return f"almanac:{task}"


def references_for(
    school: School, traces: Sequence[Trace], lessons: Mapping[str, Lesson], *, rng: np.random.Generator
) -> dict[str, str]:
    """By source: the block that goes before a guided question, from a bank of the lessons on first attempts.

    The bank and the injector are those of training, so the policy is taught by what it will meet there: half of the
    questions get their own lesson, half those of similar questions.
    """
    bank = RubricBank.in_memory(HashingEmbedder())
    for trace in traces:
        query, lesson = trace.task.query, lessons[trace.task.id]
        bank.write(
            Reflection(query_key=query.key, question=query.question, rubrics=lesson.rubrics, takeaways=lesson.takeaways)
        )
    injector = Injector(count_tokens=count_roughly)
    blocks: dict[str, str] = {}
    for task, question in school.guided.items():
        mode = Retrieval.WITHIN if rng.random() < 0.5 else Retrieval.CROSS
        blocks[source_of(task)] = injector.inject("", bank.retrieve(question.question, mode), mode).block
    return blocks
