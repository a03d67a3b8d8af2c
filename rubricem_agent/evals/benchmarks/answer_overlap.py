"""Exact match and token F1 of short answers, as 2WikiMultihopQA computes them (v1.1)."""

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

CLOSED_ANSWERS = ("yes", "no", "noanswer")
PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Overlap(NamedTuple):
    """The tokens that two texts share."""

    f1: float
    precision: float
    recall: float


NO_OVERLAP = Overlap(0.0, 0.0, 0.0)


class AnswerScore(NamedTuple):
    """Exact match, F1, precision and recall of an answer, a set of facts, or both."""

    em: float
    f1: float
    prec: float
    recall: float


NO_SCORE = AnswerScore(0.0, 0.0, 0.0, 0.0)


def normalize_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def token_overlap(prediction: str, gold: str) -> Overlap:
    """Shared tokens after normalisation; all 0 where no token is shared, even if both are empty."""
    predicted = normalize_answer(prediction).split()
    wanted = normalize_answer(gold).split()
    shared = sum((Counter(predicted) & Counter(wanted)).values())
    if not shared:
        return NO_OVERLAP
    precision = shared / len(predicted)
    recall = shared / len(wanted)
    return Overlap(harmonic_mean(precision, recall), precision, recall)


def harmonic_mean(precision: float, recall: float) -> float:
    """F1; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def score_answer(prediction: str, golds: Iterable[str]) -> AnswerScore:
    """Each number is the best over the gold answers by itself: precision and recall may come from different ones.

    Yes, no and noanswer must match exactly.
    """
    best = NO_SCORE
    for gold in golds:
        predicted = normalize_answer(prediction)
        wanted = normalize_answer(gold)
        is_closed = predicted in CLOSED_ANSWERS or wanted in CLOSED_ANSWERS
        overlap = NO_OVERLAP if is_closed and predicted != wanted else token_overlap(prediction, gold)
        current = AnswerScore(float(predicted == wanted), *overlap)
        best = AnswerScore(*(max(pair) for pair in zip(best, current, strict=True)))
    return best
