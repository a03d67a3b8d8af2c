"""Recorded verdicts of SimpleQA: one letter, and the numbers of simple-evals and of inspect_evals over all letters."""

from collections.abc import Sequence

import numpy as np

from rubricem_agent.evals.benchmarks.simpleqa import parse_letter, parse_standalone_letter, rates
from rubricem_agent.evals.parity.unit import Unit
from rubricem_agent.evals.scoring_error import ScoringError
from rubricem_env.domain.base import Text

_MEANINGS = {"is_correct": "A", "is_incorrect": "B", "is_not_attempted": "C"}


def official_metrics(letters: Sequence[str]) -> dict[str, float]:
    """Mean and population standard deviation of each indicator, by the official names. `score` is is_correct again."""
    if not letters:
        raise ScoringError("ValueError", "there is no answer to score")
    metrics: dict[str, float] = {}
    for name, letter in {**_MEANINGS, "score": "A"}.items():
        indicator = np.asarray([given == letter for given in letters])
        metrics[name] = float(np.mean(indicator))
        metrics[f"{name}:std"] = float(np.std(indicator))
    return metrics


def recorded_parse(judge_text: Text) -> object:
    letter = parse_letter(judge_text)
    return {"letter": letter} | {name: letter == wanted for name, wanted in _MEANINGS.items()}


def recorded_aggregate(judge_texts: tuple[Text, ...]) -> object:
    letters = [parse_letter(text) for text in judge_texts]
    shares = rates(letters)
    metrics = official_metrics(letters)
    accuracy = shares["accuracy_given_attempted"]
    return {
        "score_mean": metrics.pop("score"),
        "metrics": metrics,
        "aggregate": {
            **{f"is_{name}": shares[name] for name in ("correct", "incorrect", "not_attempted")},
            # The official sum of the two rates differs from 1 - not_attempted in the last bits.
            "is_given_attempted": shares["correct"] + shares["incorrect"],
            "accuracy_given_attempted": accuracy,
        },
        "output": {"accuracy_given_attempted": accuracy, "f1": shares["f1"]},
    }


def recorded_inspect_aggregate(judge_texts: tuple[Text, ...]) -> object:
    shares = rates([parse_letter(text) for text in judge_texts])
    return {
        **{name: shares[name] for name in ("correct", "not_attempted", "incorrect")},
        "attempted": 1 - shares["not_attempted"],
        "correct_given_attempted": shares["accuracy_given_attempted"],
        "f_score": shares["f1"],
    }


UNITS = {
    "parse": Unit(
        recorded_parse,
        {"inspect_evals_original_strict": parse_standalone_letter, "inspect_evals_original_paper": parse_letter},
    ),
    "aggregate": Unit(recorded_aggregate, {"inspect_evals_simpleqa_metric": recorded_inspect_aggregate}),
}
