"""The shipped world, as an environment takes it: the toolbox over its corpus, and its training questions."""

from functools import cache

from rubricem_env.domain.base import Stage
from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.trajectory import Query
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.corpus_search import Corpus, offline_toolbox
from rubricem_env.world.almanac import load_questions, shipped_corpus_path, shipped_questions_path
from rubricem_env.world.questions import Question


@cache
def shipped_toolbox() -> LocalToolbox:
    """Both search tools over the shipped corpus; made once per process."""
    return offline_toolbox(Corpus.from_jsonl(shipped_corpus_path()))


@cache
def offline_queries() -> tuple[Query, ...]:
    """The training questions of the shipped world, with their persistent rubrics."""
    questions = load_questions(shipped_questions_path())
    return tuple(query_of(question) for question in questions if question.split == "train")


def query_of(question: Question) -> Query:
    """The question without its answer.

    A rubric of negative weight becomes a negative rubric, because weights are positive in the mean of a stage.
    """
    return Query(
        question=question.question,
        answer_format=question.answer_format,
        rubrics=tuple(
            Rubric(
                stage=Stage.ANSWER,
                title=rubric.title,
                description=rubric.description,
                polarity="negative" if rubric.weight < 0 else "positive",
                weight=abs(rubric.weight),
                persistent=True,
            )
            for rubric in question.rubrics
        ),
        source=f"almanac:{question.id}",
    )
