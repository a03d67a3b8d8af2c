"""What a grader asks, of a judge or of a page, and what comes back."""

from collections.abc import Callable, Generator
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel

from rubricem_agent.evals.grading.grade import Grade


class Asked(StrEnum):
    """Who answers a question."""

    JUDGE = "judge"
    PAGE = "page"
    """The prompt is a url; the reply is the text of the page, empty where it could not be read."""


def accept_any(reply: str) -> bool:
    """For questions that every reply answers."""
    return True


class Question(NamedTuple):
    """One thing that is asked about one answer."""

    key: str
    """Names it within the grading of the answer."""
    prompt: str
    system: str = ""
    tries: int = 1
    """Asked again until a reply is accepted, at most so often in all."""
    accepts: Callable[[str], bool] = accept_any
    schema: type[BaseModel] | None = None
    """Offered to servers that know JSON modes; the reply is not held to it."""
    asked: Asked = Asked.JUDGE


Replies = tuple[str, ...]
"""All replies to one question, in order: the last one was accepted, or they are as many as the question has tries."""

Grading = Generator[tuple[Question, ...], tuple[Replies, ...], Grade]
"""Yields rounds of questions that do not depend on each other, is sent their replies, returns the grade.

It does no I/O, so that a recorded grading is replayed by sending the recorded replies.
"""
