"""What an environment falls back on when nothing is configured: the shipped corpus and questions, no key, no network."""

from functools import cache

from rubricem_env.domain.query import Query
from rubricem_env.domain.rubric import Polarity, Rubric
from rubricem_env.domain.stage import Stage
from rubricem_env.tools.base import LocalToolbox
from rubricem_env.tools.corpus import Corpus
from rubricem_env.tools.corpus_search import offline_toolbox
from rubricem_env.world.jsonl import load_questions, shipped_corpus_path, shipped_questions_path
from rubricem_env.world.questions import PersistentRubric, Question


@cache
def _shipped_corpus() -> Corpus:
    return Corpus.from_jsonl(shipped_corpus_path())


def shipped_toolbox() -> LocalToolbox:
    """Both search tools over the shipped corpus; the index is built once a process."""
    return offline_toolbox(_shipped_corpus())


@cache
def offline_queries() -> tuple[Query, ...]:
    """The training questions of the shipped world, with their persistent rubrics."""
    questions = load_questions(shipped_questions_path())
    return tuple(query_of(question) for question in questions if question.split == "train")


def query_of(question: Question) -> Query:
    """What may be known of a question before it is answered: its truth stays behind."""
    return Query(
        question=question.question,
        answer_format=question.answer_format,
        rubrics=tuple(_rubric_of(rubric) for rubric in question.rubrics),
        source=f"almanac:{question.id}",
    )


def _rubric_of(rubric: PersistentRubric) -> Rubric:
    """A negative weight is a negative rubric of that magnitude (choice B2)."""
    return Rubric(
        stage=Stage.ANSWER,
        title=rubric.title,
        description=rubric.description,
        polarity=Polarity.NEGATIVE if rubric.weight < 0 else Polarity.POSITIVE,
        weight=abs(rubric.weight),
        persistent=True,
    )
