"""The question that an episode is about, and the key that names it everywhere."""

import hashlib
import unicodedata
from enum import StrEnum
from functools import cached_property

from pydantic import field_validator

from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.rubric import Rubric


class AnswerFormat(StrEnum):
    """The shape that the answer is asked in (paper, section B.1)."""

    EXACT = "exact"
    """One boxed value."""
    SHORT = "short"
    """One paragraph with citations."""
    LONG = "long"
    """A structured report with citations."""


def query_key(question: str) -> str:
    """SHA-256 of the question, NFC and stripped, in UTF-8: no format suffix, no reference block.

    The rubric buffer, the rubric bank and every log know a question by this key.
    """
    return hashlib.sha256(unicodedata.normalize("NFC", question).strip().encode()).hexdigest()


class Query(Frozen):
    """One question with the shape of its answer and the rubrics that its data set brings."""

    question: Text
    answer_format: AnswerFormat = AnswerFormat.LONG
    rubrics: tuple[Rubric, ...] = ()
    """Persistent rubrics: Answer stage only, never retired."""
    source: Text = ""
    """Where the question comes from, for reports."""

    @field_validator("question")
    @classmethod
    def _asks_something(cls, question: str) -> str:
        if not question.strip():
            raise ValueError("a query's question is empty; it needs at least one visible character")
        return question

    @cached_property
    def key(self) -> str:
        return query_key(self.question)
