"""A policy that knows nothing, small enough to train in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rubricem_agent.reflection.candidates import ReflectionSettings
from rubricem_env.env.episode import EpisodeLimits

if TYPE_CHECKING:  # the tests of trackers run without torch
    from trainers.local.settings import LocalConfig

WORDS = ("<think>How wide is the river Tall Fox?</think>", "<answer>The width of Tall Fox is 60 m.</answer>")


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer

    folder = tmp_path_factory.mktemp("policy")
    tokenizer = tiny_tokenizer(WORDS)
    tokenizer.save_pretrained(folder)
    tiny_qwen3(len(tokenizer)).save_pretrained(folder)
    return folder


@pytest.fixture
def config(policy_folder: Path, tmp_path: Path) -> LocalConfig:
    """Two steps, a new question and its repeat; everything as small as it can be."""
    from trainers.local.settings import LocalConfig

    return LocalConfig(
        policy=policy_folder,
        out=tmp_path / "run",
        steps=2,
        questions_per_step=1,
        group_size=2,
        window=1,
        learning_rate=1e-2,
        max_turn_tokens=12,
        rows=32,
        limits=EpisodeLimits(max_calls=1, max_turns=2, max_tokens=60),
        reflection=ReflectionSettings(num_candidates=2, total_tokens=4_000, new_tokens=12),
        evaluate_every=2,
        checkpoint_every=1,
    )
