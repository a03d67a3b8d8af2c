"""A tokenizer, a random model and an opening that the policy tests share."""

import pytest

from rubricem_agent.policy.base import Opening
from rubricem_agent.policy.local import policy_tokenizer
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from tests.rubricem_agent.policy.shared import CORPUS


@pytest.fixture(scope="session")
def tokenizer():
    return policy_tokenizer(tiny_tokenizer(CORPUS))


@pytest.fixture(scope="session")
def model(tokenizer):
    return tiny_qwen3(tokenizer.size)


@pytest.fixture
def opening():
    return Opening("You are a researcher.", "How wide is the Tall Fox?")
