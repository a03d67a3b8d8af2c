"""SimpleQA: one letter per answer, A correct, B incorrect, C not attempted, and the rates of the three.

The letter is the first capital A, B or C anywhere in the reply, so that INCORRECT and CORRECT read as C and
"Answer: C" reads as A. No such letter, as in a refused request, is C.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from rubricem_agent.evals.errors import ScoringError

Letter = Literal["A", "B", "C"]

_ALONE = re.compile(r"\b([ABC])\b")


class Rates(NamedTuple):
    """Shares of all answers, the accuracy among the attempted, and F1; each 0 where its denominator is 0."""

    correct: float
    incorrect: float
    not_attempted: float
    accuracy_given_attempted: float
    f1: float

    @property
    def given_attempted(self) -> float:
        """The official sum of the two rates, which differs from 1 - not_attempted in the last bits."""
        return self.correct + self.incorrect


def parse_letter(reply: str) -> Letter:
    """The official parse."""
    return _as_letter(next((character for character in reply if character in "ABC"), "C"))


def parse_standalone_letter(reply: str) -> Letter:
    """The strict parse: the first A, B or C that stands as a word; C where there is none."""
    match = _ALONE.search(reply)
    return _as_letter(match.group(1) if match else "C")


def strict_letter(reply: str) -> Letter:
    """Strict mode: as the strict parse, but a reply without a letter counts as the worst case, incorrect."""
    return parse_standalone_letter(reply) if _ALONE.search(reply) else "B"


def rates(letters: Sequence[Letter]) -> Rates:
    """The rates over all answers. The score printed in READMEs and papers is `correct`."""
    if not letters:
        # The official code maps over the answers with a pool of min(threads, answers) workers: 0 is refused.
        raise ScoringError("ValueError", "there is no answer to score")
    correct, incorrect, not_attempted = (letters.count(letter) / len(letters) for letter in "ABC")
    attempted = correct + incorrect
    accuracy = correct / attempted if attempted > 0 else 0.0
    f1 = 2 * accuracy * correct / (accuracy + correct) if accuracy + correct > 0 else 0.0
    return Rates(correct, incorrect, not_attempted, accuracy, f1)


def official_metrics(letters: Sequence[Letter]) -> dict[str, float]:
    """Mean and population standard deviation of each indicator, by the official names. `score` is is_correct again."""
    if not letters:
        raise ScoringError("ValueError", "there is no answer to score")
    names = {"is_correct": "A", "is_incorrect": "B", "is_not_attempted": "C", "score": "A"}
    metrics: dict[str, float] = {}
    for name, letter in names.items():
        indicator = np.asarray([given == letter for given in letters])
        metrics[name] = float(np.mean(indicator))
        metrics[f"{name}:std"] = float(np.std(indicator))
    return metrics


def _as_letter(character: str) -> Letter:
    return "A" if character == "A" else "B" if character == "B" else "C"
