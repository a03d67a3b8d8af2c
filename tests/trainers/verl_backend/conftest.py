"""A tokenizer and groups of rollouts, made by real episodes without a model."""

import pytest

from rubricem_agent.policy.local import load_tokenizer
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = tiny_tokenizer(["<think>How wide?</think><answer>60 m</answer>"])
    tokenizer.save_pretrained(folder)
    tiny_qwen3(len(tokenizer)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tokenizer(model_folder):
    return load_tokenizer(model_folder)
