"""A policy of a few thousand weights on disk, for commands that train or play one."""

import pytest

from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    tokenizer = tiny_tokenizer()
    tiny_qwen3(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
