"""IGPO's gains, as a plain forward pass gives them."""

import numpy as np
import pytest
import torch

from rubricem_agent.policy.local import load_model, load_tokenizer
from rubricem_env.domain.trajectory import AnswerFormat, Trajectory
from rubricem_env.world.almanac import Almanac
from rubricem_records.rollouts.rollout_tokens import RolloutTokens
from rubricem_records.rollouts.rollouts import Rollout
from trainers.local.igpo import answer_gains, gold_answer
from trainers.local.learner import Learner, LossSettings

QUESTIONS = Almanac.from_seed(0).questions_of("train")
STAGE_IDS = (-1, 0, 0, -1, 1, -1, -1, 2, 3)
"""A prompt token, a turn of two, a tool's token, a turn of one, two of a tool, a last turn of two."""


@pytest.fixture(scope="module")
def tokenizer(policy_folder):
    return load_tokenizer(policy_folder)


@pytest.fixture(scope="module")
def learner(policy_folder):
    model = load_model(policy_folder)
    return Learner(model, learning_rate=1e-3, loss=LossSettings(), max_grad_norm=1.0, micro_batch_tokens=512)


def rollout(ids: tuple[int, ...], stage_ids: tuple[int, ...] = STAGE_IDS) -> Rollout:
    tokens = RolloutTokens(ids=ids, stage_ids=stage_ids, logprobs=(0.0,) * len(ids), prompt_length=1)
    return Rollout(trajectory=Trajectory(question="q", segments=()), policy="p", tokens=tokens)


def likelihood(model, history: tuple[int, ...], gold: list[tuple[int, bool]]) -> float:
    ids = [*history, *(token_id for token_id, _ in gold)]
    with torch.no_grad():
        logprobs = model(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(-1)
    places = [len(history) + place for place, (_, is_value) in enumerate(gold) if is_value]
    return float(np.exp(np.mean([float(logprobs[place - 1, ids[place]]) for place in places])))


def test_a_turn_gains_what_the_tools_text_after_it_adds_and_the_last_one_nothing(learner, tokenizer):
    question = QUESTIONS[0]
    ids = (5, 30, 31, 40, 32, 41, 42, 33, 34)
    short = rollout(ids[:3], STAGE_IDS[:3])
    failed = rollout(ids).model_copy(update={"tokens": None})
    gains = answer_gains(learner, [[rollout(ids), short, failed]], [question], tokenizer=tokenizer)
    gold = gold_answer(question, tokenizer)
    at = [likelihood(learner.policy, ids[:begins], gold) for begins in (1, 4, 7)]
    assert gains.shape == (3, 3)
    np.testing.assert_allclose(gains[0], [at[1] - at[0], at[2] - at[1], np.nan], rtol=1e-4)
    assert np.isnan(gains[1:]).all()


def test_in_a_folded_rollout_the_answer_is_forced_after_what_the_policy_read_in_its_window(learner, tokenizer):
    question = QUESTIONS[0]
    ids = (5, 30, 31, 40, 32, 41, 42, 33, 34)
    # The last window begins after the second turn, with the prompt 41 42.
    tokens = rollout(ids).tokens.model_copy(update={"window_starts": (0, 5)})
    gains = answer_gains(
        learner, [[rollout(ids).model_copy(update={"tokens": tokens})]], [question], tokenizer=tokenizer
    )
    gold = gold_answer(question, tokenizer)
    at = [likelihood(learner.policy, read, gold) for read in (ids[:1], ids[:4], ids[5:7])]
    np.testing.assert_allclose(gains[0], [at[1] - at[0], at[2] - at[1], np.nan], rtol=1e-4)


@pytest.mark.parametrize("is_exact", [True, False])
def test_the_values_alone_are_asked_for(tokenizer, is_exact):
    question = next(one for one in QUESTIONS if (one.answer_format is AnswerFormat.EXACT) is is_exact)
    gold = gold_answer(question, tokenizer)
    whole = tokenizer.decode([token_id for token_id, _ in gold])
    asked = tokenizer.decode([token_id for token_id, is_value in gold if is_value])
    assert whole.startswith("<answer>\\boxed{" if is_exact else "<answer>")
    needs = question.truth.needs[-1:] if is_exact else (*question.truth.needs, *question.truth.implicit_needs)
    assert all(need.value in asked for need in needs)
    assert " has " not in asked
    assert "answer" not in asked
