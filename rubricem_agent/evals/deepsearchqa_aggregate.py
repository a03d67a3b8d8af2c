"""DeepSearchQA over many answers: macro precision, recall and F1, three strict rates, and what was excluded."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from rubricem_agent.evals.deepsearchqa import Exclusion, Rating
from rubricem_agent.evals.errors import ScoringError
from rubricem_agent.evals.official_intervals import wald_text

Outcome = Rating | Exclusion | None
"""None: the rating stopped the official parser, which then counts the answer as valid and evaluates it nowhere."""


class MacroScores(NamedTuple):
    """Unweighted means over the evaluated answers."""

    precision: float
    recall: float
    f1_score: float


def macro_scores(outcomes: Sequence[Outcome]) -> MacroScores | None:
    """The official macro means, exclusions left out; None where nothing was evaluated."""
    ratings = _ratings(outcomes)
    if not ratings:
        return None
    columns = ([r.precision for r in ratings], [r.recall for r in ratings], [r.f1 for r in ratings])
    return MacroScores(*(float(np.mean(column)) for column in columns))


def strict_scores(outcomes: Sequence[Outcome]) -> MacroScores:
    """Strict mode: every exclusion counts 0. The means over all answers."""
    macro = macro_scores(outcomes)
    if macro is None:
        return MacroScores(0.0, 0.0, 0.0)
    share = len(_ratings(outcomes)) / len(outcomes)
    return MacroScores(*(value * share for value in macro))


def official_summary(outcomes: Sequence[Outcome]) -> dict[str, int | float | str]:
    """The official project rating, texts included; empty texts where nothing was evaluated."""
    if not outcomes:
        raise ScoringError("AssertionError", "there is no item to aggregate")
    ratings = _ratings(outcomes)
    empty, invalid, silent = (
        outcomes.count(kind) for kind in (Exclusion.EMPTY_RESPONSE, Exclusion.INVALID_RATER, Exclusion.EMPTY_RATER)
    )
    macro = macro_scores(outcomes)
    precision, recall, f1 = ("", "", "") if macro is None else (f"{value:.2%}" for value in macro)
    return {
        "num_total_ratings": len(outcomes),
        "num_empty_model_response": empty,
        "num_invalid_auto_rater_response": invalid,
        "num_empty_auto_rater_response": silent,
        "num_valid_ratings": len(outcomes) - empty - invalid - silent,
        "num_answer_correctness_evaluated": len(ratings),
        "pct_w_ci_all_answers_correct": _rate_text(ratings, lambda rating: rating.is_fully_correct),
        "pct_w_ci_fully_incorrect_items": _rate_text(ratings, lambda rating: rating.is_fully_incorrect),
        "pct_w_ci_correct_with_excessive_answers": _rate_text(ratings, lambda rating: rating.is_correct_with_excessive),
        "pct_empty_model_response": round(empty * 100.0 / len(outcomes), 2),
        "pct_invalid_auto_rater_response": round(invalid * 100.0 / len(outcomes), 2),
        "pct_empty_auto_rater_response": round(silent * 100.0 / len(outcomes), 2),
        "precision": precision,
        "recall": recall,
        "f1_score": f1,
    }


def _ratings(outcomes: Sequence[Outcome]) -> list[Rating]:
    return [outcome for outcome in outcomes if isinstance(outcome, Rating)]


def _rate_text(ratings: Sequence[Rating], claim: Callable[[Rating], bool]) -> str:
    return wald_text(sum(map(claim, ratings)), len(ratings)) if ratings else ""
