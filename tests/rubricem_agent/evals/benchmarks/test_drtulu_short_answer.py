import pytest

from rubricem_agent.evals.benchmarks.drtulu_short_answer import drtulu_exact, drtulu_f1
from rubricem_agent.evals.scoring_error import ScoringError


def test_dr_tulu_takes_its_label_off_for_exact_match_only() -> None:
    # F1 with the label: tokens exact, answer, paris against paris: P 1/3, R 1, F1 1/2.
    assert drtulu_exact("Exact Answer: Paris", ["paris"])
    assert drtulu_f1("Exact Answer: Paris", ["paris"]) == 0.5
    with pytest.raises(ScoringError, match="no gold answer"):
        drtulu_f1("x", [])
