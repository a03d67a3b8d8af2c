import pytest

from rubricem_agent.evals.base import ScoringError
from rubricem_agent.evals.parity.simpleqa import official_metrics


def test_no_answers_at_all_are_refused() -> None:
    with pytest.raises(ScoringError, match="no answer"):
        official_metrics([])
