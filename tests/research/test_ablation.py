"""The ablation's numbers, by hand, and its page."""

import pytest

from research.ablation import render_figure, result_cells, summarise
from rubricem_env.domain.errors import UsageError
from rubricem_records.runs.log_lines import EvaluationLine
from rubricem_records.runs.run_log import RunLog

OTHERS = {"plan": 1.0, "research": 1.0, "review": 1.0}


def log(*answers):
    """Evaluated at steps 0, 8, 16, ..."""
    evaluations = [
        EvaluationLine(step=8 * index, held_out={**OTHERS, "answer": x}, valid=1.0) for index, x in enumerate(answers)
    ]
    return RunLog([], evaluations, [])


LOGS = {
    "answer_only": {0: log(0.4, 0.4, 0.6), 1: log(0.4, 0.5, 0.4)},
    "whole": {0: log(0.4, 0.6, 0.8), 1: log(0.4, 0.5, 0.7)},
}
FOUND = summarise(LOGS, steps=16, command="python -m research.ablate <x>")
BASELINE, WHOLE = FOUND.results


def test_the_end_is_the_mean_over_seeds_and_the_difference_is_paired_by_seed():
    # (0.8 + 0.7) / 2; (0.8 - 0.6 + 0.7 - 0.4) / 2, resampled between 0.2 and 0.3.
    assert WHOLE.answer.mean == pytest.approx(0.75)
    # Three stages at 1 and an answer at 0.75 on average.
    assert WHOLE.all_stages.mean == pytest.approx((3 + 0.75) / 4)
    assert WHOLE.against_baseline.mean == pytest.approx(0.25)
    assert (WHOLE.against_baseline.low, WHOLE.against_baseline.high) == pytest.approx((0.2, 0.3))


def test_a_recipe_reaches_the_baselines_end_at_the_first_evaluated_step_whose_mean_does():
    # Answer-only ends at (0.6 + 0.4) / 2 = 0.5; the whole has (0.6 + 0.5) / 2 at step 8.
    assert WHOLE.steps_to_baseline == 8
    assert BASELINE.steps_to_baseline == 16


def test_a_recipe_that_stays_below_never_reaches_it():
    found = summarise({**LOGS, "whole": {0: log(0.1, 0.1, 0.1), 1: log(0.1, 0.1, 0.1)}}, steps=16, command="")

    assert found.results[1].steps_to_baseline is None
    assert "not reached" in result_cells(found.results[1]).values()
    assert all(result.title in render_figure(found) for result in found.results)


def test_one_seed_has_no_interval():
    one = summarise({name: {0: runs[0]} for name, runs in LOGS.items()}, steps=16, command="")

    assert result_cells(one.results[1])["answers"] == "0.800"
    assert result_cells(one.results[1])["against answer-only"] == "+0.200"
    assert result_cells(WHOLE)["against answer-only"] == "+0.250 (+0.200 to +0.300)"


def test_steps_beyond_the_budget_do_not_count():
    found = summarise(LOGS, steps=8, command="")

    assert [point.step for point in found.results[0].curve] == [0, 8]


def test_a_run_without_its_last_evaluation_is_named():
    with pytest.raises(UsageError, match="the run whole, seed 1 was not evaluated at step 16"):
        summarise({**LOGS, "whole": {0: log(0.1, 0.1, 0.1), 1: log(0.1)}}, steps=16, command="")
