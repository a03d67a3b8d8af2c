"""2WikiMultihopQA answers: exact match and token F1 (v1.1), and the judged protocol that the papers report.

Supporting facts, evidence and the joint scores are in `twowiki_full`.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rubricem_agent.evals.errors import ScoringError

CLOSED_ANSWERS = ("yes", "no", "noanswer")

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_VERDICT = re.compile(r"correct:\s*(yes|no)", re.IGNORECASE)


class AnswerScore(NamedTuple):
    """Each number is the best over the gold answers by itself: precision and recall may come from different ones."""

    em: float
    f1: float
    prec: float
    recall: float


class Overlap(NamedTuple):
    """Shared tokens between a prediction and one gold answer."""

    f1: float
    prec: float
    recall: float


NO_OVERLAP = Overlap(0.0, 0.0, 0.0)


def normalize_answer(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_overlap(prediction: str, gold: str) -> Overlap:
    """Token precision, recall and F1 after normalisation; all 0 where no token is shared, even if both are empty."""
    predicted, wanted = normalize_answer(prediction).split(), normalize_answer(gold).split()
    shared = sum((Counter(predicted) & Counter(wanted)).values())
    if not shared:
        return NO_OVERLAP
    precision, recall = shared / len(predicted), shared / len(wanted)
    return Overlap(harmonic_mean(precision, recall), precision, recall)


def harmonic_mean(precision: float, recall: float) -> float:
    """F1; 0 where both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


def answer_overlap(prediction: str, gold: str) -> Overlap:
    """As `token_overlap`, but yes, no and noanswer must match exactly."""
    predicted, wanted = normalize_answer(prediction), normalize_answer(gold)
    if predicted != wanted and (predicted in CLOSED_ANSWERS or wanted in CLOSED_ANSWERS):
        return NO_OVERLAP
    return token_overlap(prediction, gold)


def score_answer(prediction: str, golds: Iterable[str]) -> AnswerScore:
    """The best match over the gold answers; all 0 where there are none."""
    best = AnswerScore(0.0, 0.0, 0.0, 0.0)
    for gold in golds:
        overlap = answer_overlap(prediction, gold)
        exact = float(normalize_answer(prediction) == normalize_answer(gold))
        current = AnswerScore(exact, *overlap)
        best = AnswerScore(*(max(pair) for pair in zip(best, current, strict=True)))
    return best


def judge_says_correct(reply: str) -> bool:
    """The predecessor's verdict: the first "correct: yes|no" in any case. None at all is wrong.

    The pattern also matches inside "incorrect: yes", which therefore reads as correct.
    """
    match = _VERDICT.search(reply)
    return match is not None and match.group(1).lower() == "yes"


def drtulu_exact(prediction: str, golds: Iterable[str]) -> bool:
    """The predecessor's exact match, after taking off its own "Exact Answer: " label."""
    predicted = normalize_answer(prediction.replace("Exact Answer: ", "").strip())
    return any(normalize_answer(gold) == predicted for gold in golds)


def drtulu_f1(prediction: str, golds: Iterable[str]) -> float:
    """The predecessor's F1: no special case for yes and no, and the label stays in."""
    scores = [token_overlap(prediction, gold).f1 for gold in golds]
    if not scores:
        raise ScoringError("ValueError", "there is no gold answer")
    return max(scores)
