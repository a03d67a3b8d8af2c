"""Methods against the true credit, on groups small enough to work out by hand."""

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from research.credit_noise import (
    CONTESTANTS,
    DECIDING_STAGES,
    ScoredGroup,
    compare_methods,
    credit_noise,
    noisy_scores,
    play_groups,
    stage_scores,
    true_credit,
    turnover,
)
from rubricem_agent.learn.credit_methods import METHODS
from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import UsageError
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.offline import shipped_toolbox

DRAWN = {"chance": 0.5, "seed": 0}
TWO_FAULTS = (Stage.PLAN, Stage.ANSWER)


@pytest.fixture
def group() -> ScoredGroup:
    """Four rollouts: a planning fault costs the rubrics of plan, review and answer; an answering fault answer's."""
    return ScoredGroup(
        faults=np.array([[False, False], [True, False], [False, True], [True, True]]),
        rubric_scores=np.array([[2, 2, 2, 2, 2], [0, 2, 0, 0, 2], [2, 2, 2, 2, 0], [0, 2, 0, 0, 0]], dtype=np.int8),
        weights=np.ones(5),
        is_flaw=np.zeros(5, dtype=bool),
        stages=np.array([0, 1, 2, 3, 3], dtype=np.int8),
        words=[np.ones((1, 4), dtype=np.int64)] * 4,
        shares=[[0.0]] * 4,
    )


def test_scores_are_weighted_shares_with_flaws_inverted(group):
    flawed = group._replace(is_flaw=np.array([True, False, False, False, False]))
    assert stage_scores(group, group.rubric_scores)[:2].tolist() == [[1, 1, 1, 1], [0, 1, 0, 0.5]]
    assert stage_scores(flawed, flawed.rubric_scores)[:2, 0].tolist() == [0, 1]


def test_a_stage_deserves_what_its_own_decisions_did_to_the_target(group):
    # The planning fault costs 1 + 1 + 0.5 over plan, review and answer, the answering fault 0.5; each is drawn by half
    # of the rollouts, so a rollout deserves half of the cost for it, with a minus where it drew the fault.
    process = true_credit(group, TWO_FAULTS, "process")
    np.testing.assert_allclose(process[:, 0], [1.25, -1.25, 1.25, -1.25])
    np.testing.assert_allclose(process[:, 3], [0.25, 0.25, -0.25, -0.25])
    assert not process[:, 1:3].any()  # no fault is decided there
    np.testing.assert_allclose(true_credit(group, TWO_FAULTS, "answer")[:, 0], [0.25, -0.25, 0.25, -0.25])


def test_a_true_judge_lets_own_scores_point_right_and_answer_only_credit_blame_the_plan_for_the_answer(group):
    methods = compare_methods([group], TWO_FAULTS, kind="shift", noises=(0.0,), **DRAWN)[0.0]
    # Plans score 1 0 1 0 and answers 1 .5 .5 0. Own scores push the plan by +1 -1 +1 -1 and the answer by
    # sqrt(2) (1 0 0 -1), so the gradient for both faults is (-2, -sqrt 2); the credit's is (-2.5, -0.5).
    wanted = (2 * 2.5 + 2**0.5 * 0.5) / (6**0.5 * 6.5**0.5)
    assert methods["stages, identity"].angle == pytest.approx(1 - wanted, abs=1e-6)
    # The answer alone pushes both faults by sqrt(2) (1 0 0 -1): (-1, -1) but for its length.
    assert methods["answer_only"].angle == pytest.approx(1 - 3 / (2**0.5 * 6.5**0.5), abs=1e-6)
    # It blames nobody wrongly, since those in the middle get 0.
    assert methods["answer_only"].wrong_sign == methods["stages, identity"].wrong_sign == 0
    assert set(methods) == set(CONTESTANTS) > set(METHODS)


def test_a_judge_that_inverts_every_score_points_every_method_the_wrong_way(group):
    levels = compare_methods([group], TWO_FAULTS, kind="flip", noises=(0.0, 1.0), **DRAWN)
    right, wrong = levels[0.0]["stages"], levels[1.0]["stages"]
    assert wrong.correlation == pytest.approx(-right.correlation)
    assert wrong.angle == pytest.approx(2 - right.angle)
    assert turnover({0.0: levels[0.0]}) is None


def test_noise_may_spare_the_answer_and_shifts_of_all_scores_leave_no_signal(group):
    rng = np.random.default_rng(0)
    spared = noisy_scores(group, 1.0, rng, kind="flip", spares_answer=True)
    assert (spared[:, 3:] == group.rubric_scores[:, 3:]).all()
    assert (spared[:, :3] == 2 - group.rubric_scores[:, :3]).all()
    # every score of 0 or 2 becomes 1: no method has anything to say
    level = compare_methods([group], TWO_FAULTS, kind="shift", noises=(1.0,), **DRAWN)[1.0]
    assert {(method.correlation, method.angle, method.wrong_sign) for method in level.values()} == {(0.0, 1.0, 0.0)}


def test_too_few_rollouts_to_measure_by_are_refused_with_the_way_out(group):
    same = group._replace(faults=np.zeros((4, 2), dtype=bool))
    with pytest.raises(UsageError, match=r"the faults change no score .* raise --rollouts or --questions"):
        compare_methods([same], TWO_FAULTS, kind="flip", noises=(0.0,), **DRAWN)


def test_played_groups_carry_the_drawn_faults_and_true_scores():
    questions = [question for question in load_questions(shipped_questions_path()) if question.split == "train"][:2]
    done = []
    groups = play_groups(questions, shipped_toolbox(), rollouts=4, chance=0.5, seed=1, progress=done.append)
    assert [group.faults.shape for group in groups] == [(4, len(DECIDING_STAGES))] * 2
    assert groups[0].rubric_scores.shape[1] == len(groups[0].weights)
    assert done == [1, 2]
    # every turn has words, a plan stands in the first and an answer in the last, and pages are only ever added
    assert all((words.sum(1) > 0).all() and words[0, 0] and words[-1, 3] for words in groups[0].words)
    assert all(list(shares) == sorted(shares) and shares[0] == 0 for shares in groups[0].shares)
    assert any(shares[-1] > 0.5 for shares in groups[0].shares)
    again = play_groups(questions, shipped_toolbox(), rollouts=4, chance=0.5, seed=1)
    assert np.array_equal(groups[1].rubric_scores, again[1].rubric_scores)


def test_the_summary_says_in_how_many_seeds_and_from_which_noise_on():
    app = typer.Typer()
    app.command()(credit_noise)
    shown = CliRunner().invoke(app, ["--questions", "4", "--rollouts", "6"]).output
    assert "answer-only credit is as close to the true credit as SS-GRPO in 1 of 1 seeds, from noise 0 on" in " ".join(
        shown.split()
    )
