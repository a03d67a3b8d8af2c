import pytest

from rubricem_agent.evals.parity.simpleqa import official_metrics
from rubricem_agent.evals.scoring_error import ScoringError


def test_no_answers_at_all_are_refused() -> None:
    with pytest.raises(ScoringError, match="no answer"):
        official_metrics([])
