"""A grading from recorded replies, without a judge: how every number of a report comes about."""

from collections.abc import Callable

from rubricem_agent.evals.grading.grade import Grade
from rubricem_agent.evals.grading.question import Grading, Question, Replies


class MissingReplyError(LookupError):
    """A question has no recorded reply."""

    def __init__(self, question: Question) -> None:
        super().__init__(f"the question {question.key} has no reply")
        self.question = question


def replay(grading: Grading, find: Callable[[Question], Replies | None]) -> Grade:
    """Send the recorded replies round by round.

    Raises:
        MissingReplyError: for the first question without a reply.
    """
    try:
        questions = next(grading)
        while True:
            questions = grading.send(tuple(_found(question, find) for question in questions))
    except StopIteration as finished:
        grade: Grade = finished.value
        return grade


def _found(question: Question, find: Callable[[Question], Replies | None]) -> Replies:
    replies = find(question)
    if not replies:
        raise MissingReplyError(question)
    return replies
