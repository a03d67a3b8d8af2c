"""Attempts that differ: the almanac's expert with drawn faults. A random policy would write nothing to tell apart."""

from rubricem_env.domain import Query
from rubricem_env.env import query_of
from rubricem_env.world import AlmanacTeacher, Faults, Question, draw_slips, load_questions, shipped_questions_path

QUESTION_ID = "train-rivers-02"
ATTEMPTS = (
    Faults(),
    Faults(skip_need=0.9, forget_citation=0.9),
    Faults(repeat_query=0.9, miss_convention=1.0, claim_unfound=0.9),
    Faults(trust_stale=0.9, skip_need=0.5),
)
"""Four attempts at one question; the index is the seed. Their scores stand in tests/adapters/golden.json."""


class Tutor:
    """Writes one attempt; call it with each observation, the prompt first."""

    def __init__(self, question: Question, index: int) -> None:
        self._teacher = AlmanacTeacher(question, draw_slips(question, ATTEMPTS[index % len(ATTEMPTS)], seed=index))
        self._observations: list[str] | None = None

    def __call__(self, observation: str) -> str:
        """The next turn."""
        self._observations = [] if self._observations is None else [*self._observations, observation]
        return self._teacher.turn(self._observations)


def tutored_questions() -> dict[str, Question]:
    """The training questions by their text."""
    questions = load_questions(shipped_questions_path())
    return {question.question: question for question in questions if question.split == "train"}


def tutored_query() -> Query:
    """The one question of the examples."""
    return next(query_of(question) for question in tutored_questions().values() if question.id == QUESTION_ID)
