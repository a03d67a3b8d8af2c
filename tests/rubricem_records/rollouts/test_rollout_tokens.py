import pytest

from rubricem_records.rollouts.rollout_tokens import NO_STAGE, RolloutTokens


def _tokens(window_starts: tuple[int, ...]) -> RolloutTokens:
    return RolloutTokens(
        ids=(5, 6, 7, 8, 9),
        stage_ids=(NO_STAGE, 0, NO_STAGE, NO_STAGE, 1),
        logprobs=(0.0, -0.1, 0.0, 0.0, -0.2),
        prompt_length=1,
        window_starts=window_starts,
    )


def test_windows_cover_the_tokens_one_after_the_other():
    assert _tokens((0, 2)).windows == (slice(0, 2), slice(2, 5))
    assert _tokens((0,)).windows == (slice(0, 5),)


@pytest.mark.parametrize("starts", [(), (1,), (0, 0), (0, 3, 2), (0, 6)])
def test_windows_that_overlap_or_leave_the_tokens_are_refused(starts):
    with pytest.raises(ValueError, match="windows begin at 0"):
        _tokens(starts)


def test_a_window_in_which_the_policy_wrote_nothing_is_not_trained_on():
    assert _tokens((0, 2, 3)).written_windows == (slice(0, 2), slice(3, 5))
    blank = RolloutTokens(ids=(5, 6), stage_ids=(NO_STAGE,) * 2, logprobs=(0.0,) * 2, prompt_length=1)
    assert blank.written_windows == (slice(0, 2),)
