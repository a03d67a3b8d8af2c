"""The questions of a run on veRL, by query key, and the truth of them where the almanac is the world."""

from typing import NamedTuple

from rubricem_agent.data.training_set import read_training_set
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.query import Query
from rubricem_env.env.offline import query_of
from rubricem_env.world.jsonl import load_questions, shipped_questions_path
from rubricem_env.world.questions import Question
from trainers.verl_backend.settings import VerlSettings


class TrainingQuestions(NamedTuple):
    """What is trained on."""

    queries: dict[str, Query]
    almanac: dict[str, Question]
    """The truth by query key; empty outside the almanac."""


def load_training_questions(settings: VerlSettings) -> TrainingQuestions:
    """The almanac's training questions, or those of the file.

    Raises:
        ConfigError: neither is set.
        FileFormatError: the file cannot be read, a line is no question with rubrics, or a question stands twice.
    """
    if settings.almanac is not None:
        shipped = load_questions(shipped_questions_path())
        almanac = {query_of(question).key: question for question in shipped if question.split == "train"}
        return TrainingQuestions({key: query_of(question) for key, question in almanac.items()}, almanac)
    if settings.questions is None:
        raise ConfigError("rubricem.questions is not set; name a JSONL file, or train in the almanac.")
    return TrainingQuestions({query.key: query for query in read_training_set(settings.questions)}, {})
