"""Samples carry the credit of their stage on every token of it."""

import numpy as np
import pytest

from rubricem_agent.learn.credit import CreditSettings
from rubricem_agent.learn.credit_methods import CreditMode
from rubricem_agent.learn.samples import Sample, pad_batch, reflection_samples, task_samples
from rubricem_agent.learn.step import credit_rollouts
from rubricem_agent.policy.base import Opening, TokenSegment
from rubricem_agent.reflection.candidates import ReflectionSample
from rubricem_agent.reflection.reflector import ReflectionOutcome
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.judge.judgements import GroupJudgement, RolloutJudgement
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout

TOKENS = RolloutTokens(ids=(9, 1, 2, 8, 3), stage_ids=(-1, 0, 0, -1, 3), logprobs=(0, -1, -2, 0, -3), prompt_length=1)


def rollout(*, failure: str = "", tokens: RolloutTokens | None = TOKENS) -> Rollout:
    return Rollout(trajectory=Trajectory(question="q", segments=()), policy="p", tokens=tokens, failure=failure)


def judged(*scores: float) -> GroupJudgement:
    """The same score at each stage."""
    judgements = [Judgement.of({stage: StageScore(score=score) for stage in STAGES}) for score in scores]
    rollouts = tuple(RolloutJudgement(judgement=judgement) for judgement in judgements)
    return GroupJudgement(query_key="k", step=1, fingerprint="f", rubrics=(), rollouts=rollouts)


def reflection(text: str, utility: float, *, scored: bool = True) -> ReflectionSample:
    score = ReflectionScore(diagnosis=utility, specificity=utility, scope=utility) if scored else None
    pieces = (TokenSegment((7, 7)), TokenSegment((1, 2), is_policy=True, logprobs=(-0.5, -0.5), starts=(0, 1)))
    return ReflectionSample(text=text, pieces=pieces, score=score)


def outcome(*samples: ReflectionSample, version: int | None = None) -> ReflectionOutcome:
    opening = Opening("s", "u")
    drawn = ReflectionOutcome(
        query_key="k", step=1, attempt=0, opening=opening, prompt_hash="h", temperature=0.7, samples=samples
    )
    return drawn.model_copy(update={"policy_version": version})


def samples_of(rollouts: list[Rollout], judgement: GroupJudgement, *, credit: CreditMode = "stages") -> list[Sample]:
    credited = credit_rollouts([rollouts], [judgement], settings=CreditSettings(credit=credit))
    return task_samples([rollouts], credited, version=4)


def test_each_policy_token_carries_its_stages_advantage_and_others_carry_none():
    # scores 1 and 0 at every stage: advantages are +1 and -1 at every stage
    samples = samples_of([rollout(), rollout()], judged(1.0, 0.0))
    assert np.allclose(samples[0].advantages, [0, 1, 1, 0, 1])
    assert np.allclose(samples[1].advantages, [0, -1, -1, 0, -1])
    assert samples[0].policy_version == 4


FOLDED = RolloutTokens(
    ids=(9, 1, 2, 9, 7, 3, 9, 8, 4),
    stage_ids=(-1, 0, 0, -1, -1, 1, -1, -1, 3),
    logprobs=(0, -1, -2, 0, 0, -3, 0, 0, -4),
    prompt_length=1,
    window_starts=(0, 3, 6),
)
"""Three windows: a plan of two tokens; a prompt of two and a search; a prompt of two and the answer."""


def test_each_window_of_a_folded_rollout_is_a_sample_and_its_group_counts_the_rollout_once():
    # By the answer alone, scores 1, 0 and 0.5 have mean 0.5 and deviation sqrt(1/6): advantages +-1.2247 and 0. Were
    # the three windows of the first counted as rollouts, the mean would be 0.7.
    rollouts = [rollout(tokens=FOLDED), rollout(), rollout()]
    samples = samples_of(rollouts, judged(1.0, 0.0, 0.5), credit="answer_only")
    assert [list(sample.token_ids) for sample in samples[:3]] == [[9, 1, 2], [9, 7, 3], [9, 8, 4]]
    assert [list(sample.rollout_logprobs) for sample in samples[:3]] == [[0, -1, -2], [0, 0, -3], [0, 0, -4]]
    high = 6**0.5 / 2
    for sample, expected in zip(samples, [[0, high, high], [0, 0, high], [0, 0, high]], strict=False):
        assert np.allclose(sample.advantages, expected)
    assert np.allclose(samples[3].advantages, [0, -high, -high, 0, -high])
    assert [sample.rollout for sample in samples] == [0, 0, 0, 1, 2]
    assert pad_batch(samples, pad_id=0).num_rollouts == 3


def test_draco_shares_by_the_tokens_of_all_windows():
    # A text of one window with the same policy tokens has the same credit.
    ids, stages, logprobs = zip(
        *((9, -1, 0), (1, 0, -1), (2, 0, -2), (7, -1, 0), (3, 1, -3), (8, -1, 0), (4, 3, -4)), strict=True
    )
    whole = RolloutTokens(ids=ids, stage_ids=stages, logprobs=logprobs, prompt_length=1)
    written = []
    for tokens in (FOLDED, whole):
        samples = samples_of([rollout(tokens=tokens), rollout()], judged(0.75, 0.25), credit="draco")
        first = [sample for sample in samples if sample.rollout == 0]
        written.append(np.concatenate([one.advantages[np.asarray(one.stage_ids) >= 0] for one in first]))
    np.testing.assert_array_equal(*written)


def test_a_group_whose_rollouts_score_alike_teaches_nothing():
    assert samples_of([rollout(), rollout()], judged(0.5, 0.5)) == []


def test_a_failed_rollout_is_left_out_of_statistics_and_samples():
    rollouts = [rollout(), rollout(), rollout(failure="server down")]
    credited = credit_rollouts([rollouts], [judged(1.0, 0.0, 1.0)], settings=CreditSettings(credit="answer_only"))
    assert len(task_samples([rollouts], credited, version=0)) == 2
    assert credited.credit.advantages[2].tolist() == [0, 0, 0, 0]


def test_a_policy_without_tokens_cannot_be_trained():
    with pytest.raises(ValueError, match="token mode"):
        samples_of([rollout(tokens=None), rollout(tokens=None)], judged(1.0, 0.0))


def test_reflections_are_normalised_within_their_question_and_keep_their_temperature():
    samples = reflection_samples([outcome(reflection("a", 1.0), reflection("b", 0.0))], version=2)
    assert np.allclose(samples[0].advantages, [0, 0, 1, 1])
    assert np.allclose(samples[1].advantages, [0, 0, -1, -1])
    assert list(samples[0].stage_ids) == [-1, -1, 0, 0]
    assert (list(samples[0].token_ids), list(samples[0].rollout_logprobs)) == ([7, 7, 1, 2], [0.0, 0.0, -0.5, -0.5])
    assert {sample.temperature for sample in samples} == {0.7}


def test_reflections_have_the_version_that_drew_them_and_not_the_one_that_trains_on_them():
    told = outcome(reflection("a", 1.0), reflection("b", 0.0), version=3)
    untold = outcome(reflection("a", 1.0), reflection("b", 0.0))
    samples = reflection_samples([told, untold], version=5)
    assert [sample.policy_version for sample in samples] == [3, 3, 5, 5]


def test_unscored_reflections_and_questions_without_any_are_not_trained_on():
    scored = outcome(reflection("a", 1.0), reflection("b", 0.0), reflection("c", 0.0, scored=False))
    assert len(reflection_samples([scored, outcome(reflection("d", 0.0, scored=False))], version=0)) == 2
