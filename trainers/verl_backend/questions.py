"""The questions that a run on veRL trains on."""

from rubricem_agent.data.question_files import read_training_set
from rubricem_env.domain.trajectory import Query
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.offline import query_of
from rubricem_env.world.questions import Question

from .settings import VerlSettings


def load_training_questions(settings: VerlSettings) -> tuple[dict[str, Query], dict[str, Question]]:
    """The queries to train on, and the truth about them, by query key; the truth is empty outside the almanac.

    Raises:
        FileFormatError: the file cannot be read, a line is not a question with rubrics, or a question occurs twice.
    """
    if settings.almanac is not None:
        questions = [question for question in load_questions(shipped_questions_path()) if question.split == "train"]
        truth = {query_of(question).key: question for question in questions}
        return {key: query_of(question) for key, question in truth.items()}, truth
    assert settings.questions is not None, "the settings refuse a run without questions"
    last = settings.stage_set.scaffold.last
    return {query.key: query for query in read_training_set(settings.questions, last)}, {}
