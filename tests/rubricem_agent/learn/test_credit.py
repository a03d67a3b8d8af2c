"""Stage credit against numbers worked by hand, and against a slow version written out from the paper."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from rubricem_agent.learn.credit import (
    PAPER_MATRIX,
    CreditSettings,
    assign_credit,
    check_matrix,
    check_scores,
    credit_judged,
    spread_to_tokens,
)
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.domain.stage_set import DEEP_RESEARCH, StageGuide, StageSet
from tests.scaffolds import EIGHT, ONE, THREE

scores_of_a_group = hnp.arrays(np.float64, st.tuples(st.integers(1, 9), st.just(4)), elements=st.floats(0, 1, width=32))


def by_hand(scores: np.ndarray, valid: list[bool]) -> tuple[list[list[float]], list[list[float]]]:
    """The paper's sums, one number at a time."""
    rollouts = range(len(scores))
    returns = [[sum(PAPER_MATRIX[k][j] * scores[i, j] for j in range(k, 4)) for k in range(4)] for i in rollouts]
    kept = [i for i in rollouts if valid[i]]
    advantages = [[0.0] * 4 for _ in rollouts]
    for k in range(4):
        column = [returns[i][k] for i in kept]
        mean = sum(column) / len(column)
        std = (sum((value - mean) ** 2 for value in column) / len(column)) ** 0.5
        for i in kept:
            advantages[i][k] = 0.0 if std < 1e-6 else (returns[i][k] - mean) / (std + 1e-8)
    return returns, advantages


def test_the_default_matrix_is_the_papers_as_printed():
    # Appendix F.1.2: rows are the stages that earn, columns the stages that are scored.
    assert PAPER_MATRIX == ((1.0, 0.4, 0.6, 0.8), (0.0, 1.0, 0.4, 0.8), (0.0, 0.0, 1.0, 0.8), (0.0, 0.0, 0.0, 1.0))


def test_a_stage_earns_of_the_stages_after_it_and_of_none_before():
    # research alone is good: plan earns 0.4 of it, review and answer nothing
    assert assign_credit([[0, 1, 0, 0], [0, 0, 0, 0]]).returns[0].tolist() == [0.4, 1.0, 0.0, 0.0]


def test_the_spread_is_that_of_the_group_itself_not_of_a_population():
    # answers 1, 0, 0, 0: mean 1/4, variance (9 + 1 + 1 + 1)/16/4 = 3/16; A = 0.75 / (sqrt(3)/4) = sqrt(3)
    advantages = assign_credit([[0, 0, 0, 1], [0] * 4, [0] * 4, [0] * 4]).advantages
    assert advantages[:, 3] == pytest.approx([3**0.5, -(3**-0.5), -(3**-0.5), -(3**-0.5)])


def test_a_stage_without_spread_has_advantage_exactly_zero_while_others_keep_theirs():
    advantages = assign_credit([[1, 0.3, 0.7, 0.1], [0, 0.3, 0.7, 0.1]]).advantages
    assert advantages[:, 1:].tolist() == [[0.0] * 3, [0.0] * 3]
    assert advantages[:, 0] == pytest.approx([1.0, -1.0])


def test_rounding_is_not_taken_for_a_preference():
    # 0.1 + 0.2 and 0.3 differ in the last bit: std about 2e-17, far below 1e-6
    advantages = assign_credit([[0.1 + 0.2, 0, 0, 0], [0.3, 0, 0, 0]]).advantages
    assert not advantages.any()


def test_a_masked_rollout_is_left_out_of_the_statistics_and_gets_zero():
    credit = assign_credit([[1] * 4, [0] * 4, [0.9] * 4], valid=[True, True, False])
    np.testing.assert_allclose(credit.advantages[:, 0], [1, -1, 0], atol=1e-7)
    assert credit.trainable.tolist() == [True, True, False]


@pytest.mark.parametrize(("valid", "count"), [([True, False], 1), ([False, False], 0)])
def test_a_group_with_fewer_than_two_valid_rollouts_is_skipped_and_says_so(valid, count):
    credit = assign_credit([[1] * 4, [0] * 4], valid=valid, groups=[7, 7])
    assert not credit.advantages.any()
    assert not credit.trainable.any()
    assert str(credit.skipped[0]) == (
        f"group 7 is skipped: {count} of its rollouts are valid, and an advantage needs at least 2 to compare."
    )


def test_a_group_is_trained_on_unless_all_its_stages_are_flat():
    credit = assign_credit([[1, 0, 0, 0], [0] * 4, [0.5] * 4, [0.5] * 4], groups=[0, 0, 1, 1])
    assert credit.trainable.tolist() == [True, True, False, False]
    assert credit.skipped == ()


def test_terminal_mode_gives_every_stage_the_credit_of_the_answer():
    credit = assign_credit([[1, 1, 1, 0.25], [0, 0, 0, 0.75]], mode="answer_only")
    assert credit.returns.tolist() == [[0.25] * 4, [0.75] * 4]
    np.testing.assert_allclose(credit.advantages, [[-1] * 4, [1] * 4], atol=1e-7)


def test_many_groups_at_once_are_the_same_as_each_alone_in_any_order():
    rng = np.random.default_rng(3)
    scores, groups = rng.random((60, 4)), rng.integers(0, 9, 60) * 5 - 10
    valid = rng.random(60) > 0.2
    together = assign_credit(scores, groups=groups, valid=valid).advantages
    for group in np.unique(groups):
        rows = groups == group
        alone = assign_credit(scores[rows], valid=valid[rows]).advantages
        np.testing.assert_allclose(together[rows], alone, atol=1e-12)


@given(scores_of_a_group, st.data())
def test_it_equals_the_paper_written_out(scores, data):
    valid = data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    credit = assign_credit(scores, valid=valid)
    if sum(valid) < 2:
        assert not credit.advantages.any()
        return
    returns, advantages = by_hand(scores, valid)
    np.testing.assert_allclose(credit.returns, returns, atol=1e-12)
    np.testing.assert_allclose(credit.advantages, advantages, rtol=1e-5, atol=1e-5)


@given(scores_of_a_group)
def test_advantages_are_finite_and_sum_to_zero_in_every_stage(scores):
    advantages = assign_credit(scores).advantages
    assert np.isfinite(advantages).all()
    np.testing.assert_allclose(advantages.sum(0), 0, atol=1e-6)


@given(st.data())
@settings(max_examples=50)
def test_every_token_has_the_advantage_of_its_stage_and_foreign_tokens_none(data):
    shape = data.draw(st.tuples(st.integers(0, 4), st.integers(0, 30)))
    ids = data.draw(hnp.arrays(np.int8, shape, elements=st.integers(-1, 3)))
    advantages = np.arange(1.0, 4 * shape[0] + 1).reshape(shape[0], 4)
    tokens = spread_to_tokens(advantages, ids)
    assert tokens.dtype == np.float32
    assert tokens.shape == shape
    for row, column in product(*map(range, shape)):
        stage = ids[row, column]
        assert tokens[row, column] == (0 if stage < 0 else advantages[row, stage])


@pytest.mark.parametrize(("ids", "found"), [([[4]], "4 to 4"), ([[-2, 0]], "-2 to 0")])
def test_an_unknown_stage_id_is_refused(ids, found):
    with pytest.raises(UsageError, match=f"between -1 and 3; found {found}"):
        spread_to_tokens(np.zeros((1, 4)), np.array(ids))


def test_stage_ids_for_another_number_of_rollouts_are_refused():
    with pytest.raises(UsageError, match=r"shape \(2, 3\) do not fit advantages of shape \(1, 4\)"):
        spread_to_tokens(np.zeros((1, 4)), np.zeros((2, 3), dtype=np.int8))


EYE = np.eye(4)


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (EYE[:3], "must be 4 x 4, a row for each stage; its shape is 3 x 4"),
        (np.ones((4, 4)), "has 1 in row 2, column 1: below the diagonal it must be 0"),
        (EYE * 0.5, "has 0.5 in row 1, column 1: the diagonal must be 1"),
        (EYE + np.eye(4, k=1) * 1.5, "row 1, column 2 is 1.5; it must be a number between 0 and 1"),
        (EYE * np.nan, "row 1, column 1 is nan"),
        ([[1, 0], [0]], "must be rows of numbers, all of one length"),
        ([["1"]], "something else stands among them"),
        ([[None]], "None stands among them. Write scores, valid, scored = group_scores(judgements)"),
        (1.0, "its shape is that of one number"),
    ],
)
def test_a_matrix_that_breaks_a_rule_is_refused_in_a_sentence(matrix, sentence):
    with pytest.raises(UsageError) as refusal:
        check_matrix(matrix)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ([], "a row for each rollout and a column for each stage; its shape is 0"),
        ([[0, 0, 0, float("nan")]], "rollout 1, stage 4 is nan; it must be a number between 0 and 1"),
        ([[0] * 4, [0, float("inf"), 0, 0]], "rollout 2, stage 2 is inf"),
        ([[0, -0.1, 0, 0]], "stage 2 is -0.1"),
        ([[0, 1.01, 0, 0]], "stage 2 is 1.01"),
        ([[True, False, True, True]], "something else stands among them"),
    ],
)
def test_scores_that_are_none_are_refused_in_a_sentence(scores, sentence):
    with pytest.raises(UsageError) as refusal:
        check_scores(scores)
    assert sentence in str(refusal.value)


def test_a_mask_or_groups_of_another_length_are_refused():
    with pytest.raises(UsageError, match="true or false for each of the 1 rollouts"):
        assign_credit([[0] * 4], valid=[True, True])
    with pytest.raises(UsageError, match="one integer for each of the 1 rollouts"):
        assign_credit([[0] * 4], groups=[0, 1])


@pytest.mark.parametrize("scaffold", [ONE, THREE, EIGHT], ids=lambda scaffold: scaffold.name)
def test_judged_rollouts_are_credited_with_the_matrix_of_their_stages(scaffold):
    size = len(scaffold.names)
    rows = [[0.0] * row + [1.0] + [0.5] * (size - row - 1) for row in range(size)]
    guides = tuple(StageGuide(question="?", contents="", extent="") for _ in range(size))
    stage_set = StageSet(scaffold=scaffold, guides=guides, matrix=rows, prompts={"agent": "x"})
    judgements = [
        Judgement.of({name: StageScore(score=score) for name in scaffold.names}, scaffold.names) for score in (1.0, 0.0)
    ]
    stage_ids = np.tile(np.arange(size), (2, 1))
    judged = {"groups": [0, 0], "valid": [True, True], "stage_ids": stage_ids, "stage_set": stage_set}
    credit = credit_judged(judgements, settings=CreditSettings(), **judged)
    # Full marks return 1 and a half of each later stage; two rollouts are one deviation from their mean.
    assert credit.returns[0].tolist() == [1 + 0.5 * (size - row - 1) for row in range(size)]
    assert np.allclose(credit.spread(stage_ids), [[1.0] * size, [-1.0] * size])
    own = CreditSettings(matrix=tuple(map(tuple, np.eye(size).tolist())))
    assert credit_judged(judgements, settings=own, **judged).returns[0].tolist() == [1.0] * size


def test_the_papers_matrix_is_that_of_deep_research_and_a_config_may_give_another():
    assert DEEP_RESEARCH.matrix == PAPER_MATRIX
    assert CreditSettings().matrix is None
    with pytest.raises(ConfigError, match="the diagonal must be 1"):
        CreditSettings(matrix=((0.5,),))


def test_judgements_of_other_stages_than_the_set_are_refused():
    judgements = [Judgement.of({"report": StageScore(score=1.0)}, THREE.names)] * 2
    with pytest.raises(UsageError, match="a judgement has the stages frame, analyse, report, and the credit is of the"):
        credit_judged(
            judgements, groups=[0, 0], valid=[True, True], stage_ids=np.zeros((2, 1), int), settings=CreditSettings()
        )
