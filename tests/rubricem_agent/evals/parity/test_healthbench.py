from rubricem_agent.evals.parity.healthbench import inspect_met, recorded_inspect_aggregate
from rubricem_agent.evals.parity.recorded_judge import API_ERROR, RecordedJudge


def test_inspect_without_any_score_reads_zero() -> None:
    assert recorded_inspect_aggregate((), 0) == {"score": 0.0, "bootstrap_std_error": 0.0}
    assert inspect_met(RecordedJudge([API_ERROR])) is False
