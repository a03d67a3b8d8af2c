"""The page of credit methods, with every number worked out by hand."""

import pytest

from research.arena import area, at_cost, holm, render_arena, sign_test, step_cost
from rubricem_env.domain.errors import UsageError
from rubricem_records.runs.log_lines import EvaluationLine, RolloutStats, StageMetrics, StepLine, UpdateMetrics
from rubricem_records.runs.recipes import METHODS, choose_recipes
from rubricem_records.runs.run_log import RunLog


def step(number: int, tokens: int = 100, reflected: int = 0) -> StepLine:
    """A fifth of the trained tokens are the answer's."""
    stage = StageMetrics(tokens=10, entropy=0.1, kl=0.0, clip_share=0.0, loss_share=0.2)
    update = UpdateMetrics(loss=0.1, grad_norm=1.0, tokens=50, sampling_gap=0.0, stages={"answer": stage})
    return StepLine(
        step=number,
        encounter="new",
        true={},
        judged={},
        task=update,
        reflection=update.model_copy(update={"tokens": reflected}) if reflected else None,
        rollout_stats=RolloutStats(answer_words=9, repeated_calls=0, valid=1, policy_tokens=tokens),
    )


def log(*answers: float, tokens: int = 100) -> RunLog:
    """Evaluated at steps 0, 2, 4, ..."""
    by_stage = [dict.fromkeys(("plan", "research", "review", "answer"), answer) for answer in answers]
    evaluations = [EvaluationLine(step=2 * index, held_out=scores, valid=1.0) for index, scores in enumerate(by_stage)]
    return RunLog([step(number, tokens) for number in range(1, 2 * len(answers) - 1)], evaluations, [])


def test_a_step_costs_what_is_sampled_and_what_its_judge_reads():
    assert step_cost(step(1), "stages") == 200
    assert step_cost(step(1), "answer_only") == 120
    assert step_cost(step(1), "igpo") == 220
    assert step_cost(step(1, reflected=30), "stages") == 260


def test_the_area_is_the_mean_of_the_curve_and_equal_cost_lies_on_it():
    run = log(0.4, 0.6, 1.0)
    # (0.5 + 0.8) / 2 on two equal stretches; 4 steps of 200 tokens, so 500 are spent at step 2.5
    assert area(run, 4) == pytest.approx(0.65)
    assert at_cost(run, "stages", 4, 500) == pytest.approx(0.7)
    assert at_cost(run, "stages", 4, 9_999) == 1.0


def test_p_counts_the_signs_that_reach_the_mean_and_holm_multiplies_by_what_is_left():
    assert sign_test([0.1, 0.2, 0.3]) == 2 / 8
    assert sign_test([0.3, -0.1]) == 1.0  # + + and + - and their opposites: 0.4 and 0.2 all reach 0.2
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})


def test_the_page_has_each_method_beside_ss_grpo():
    logs = {
        "ss_grpo": {0: log(0.4, 0.6, 0.8), 1: log(0.4, 0.8, 0.8)},
        "answer_only": {0: log(0.4, 0.5, 0.8), 1: log(0.4, 0.6, 0.6)},
    }
    page = render_arena(logs, METHODS, steps=4, command="python -m research.ablate")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")][1:]
    assert [row[0] for row in rows] == ["| answer-only GRPO", "| SS-GRPO"]
    # areas .55 .55 against .6 .7: -.05 and -.15; of four pairs of signs two reach it; 4 steps of 120 and 200 tokens
    assert rows[0][4].startswith("-0.100 (-0.150 to -0.050)")
    assert (rows[0][5], rows[0][7], rows[1][7]) == ("0.50", "0 |", "1 |")
    # the cheapest spends 480: SS-GRPO has made 2.4 steps by then, and stands at .64 and .8
    assert rows[1][6].startswith("0.720")


def test_methods_are_chosen_by_set_or_name_and_the_two_they_are_compared_with_come_too():
    assert [one.name for one in choose_recipes("srar")] == ["answer_only", "ss_grpo", "srar"]
    assert [one.credit for one in choose_recipes("credit")] == [one.credit for one in METHODS]
    assert len({one.changes for one in choose_recipes("all")}) == 12
    with pytest.raises(UsageError, match="no method 'grpoo'; give credit, references, all, or some of answer_only"):
        choose_recipes("grpoo")
