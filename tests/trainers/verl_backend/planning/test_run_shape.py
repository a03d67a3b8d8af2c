"""A run's file read without Hydra, and what is refused in it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rubricem_env.domain.errors import ConfigError
from tests.trainers.verl_backend.planning.conftest import RECIPE
from trainers.verl_backend.planning.run_shape import (
    KNOWN,
    RunShape,
    find_model_shape,
    read_run_file,
    read_run_shape,
    value_at,
)


def test_changes_are_made_as_hydra_would_make_them() -> None:
    changes = ["trainer.nnodes=2", "+data.new.key=[1, 2]", "++rubricem.seed=7", "~trainer.logger", "a.b=true"]
    config = read_run_file(RECIPE, changes)

    assert value_at(config, "trainer.nnodes", 0) == 2
    assert value_at(config, "data.new.key", 0) == [1, 2]
    assert value_at(config, "rubricem.seed", 0) == 7
    assert value_at(config, "trainer.logger", "gone") == "gone"
    assert value_at(config, "a.b", False) is True


@pytest.mark.parametrize("change", ["trainer.nnodes", "=2", "a=[1"])
def test_a_change_that_is_none_is_refused(change: str) -> None:
    with pytest.raises(ConfigError, match=r"KEY=VALUE|is not valid YAML"):
        read_run_file(RECIPE, [change])


def test_a_mistyped_key_is_refused_and_one_that_only_verl_knows_is_not() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'trainer\.nnodes'"):
        read_run_file(RECIPE, ["trainer.nodes=2"])
    with pytest.raises(ConfigError, match=r"'nnodes=2' changes no key of the file; give its section: trainer\."):
        read_run_file(RECIPE, ["nnodes=2"])
    assert read_run_file(RECIPE, ["+foo=2"])["foo"] == 2
    config = read_run_file(RECIPE, ["actor_rollout_ref.rollout.enforce_eager=true", "+trainer.nodes=2"])
    assert value_at(config, "actor_rollout_ref.rollout.enforce_eager", False) is True


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("[1]")
    with pytest.raises(ConfigError, match="holds a YAML list"):
        read_run_file(tmp_path / "list.yaml")
    with pytest.raises(ConfigError, match="cannot read the config"):
        read_run_file(tmp_path / "none.yaml")


def test_what_the_file_leaves_out_is_verls_own_default(almanac: dict[str, Any]) -> None:
    config = {**almanac, "data": {"max_response_length": 18_432, "train_batch_size": None}}
    config["trainer"] = {"total_training_steps": 3}
    config["actor_rollout_ref"] = {"actor": {"ppo_max_token_len_per_gpu": 20_000}}
    shape = read_run_shape(config)

    assert (shape.questions, shape.prompt_tokens, shape.engine_share, shape.tensor_parallel) == (1_024, 512, 0.5, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("trainer.nnodes=0", r"trainer\.nnodes is refused"),
        ("trainer.total_training_steps=null", r"trainer\.total_training_steps is refused"),
        ("data.train_batch_size=many", r"data\.train_batch_size is refused"),
        ("actor_rollout_ref.rollout.gpu_memory_utilization=1.5", "gpu_memory_utilization is refused"),
        (
            "actor_rollout_ref.actor.ulysses_sequence_parallel_size=3",
            "32 GPUs cannot be divided into .*parallel_size=3",
        ),
        ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096", "Raise it to 6656"),
        ("actor_rollout_ref.rollout.max_model_len=40960", "max_model_len is 40960, and training holds rows of 26624"),
        (
            "rubricem.reflection.total_tokens=30000",
            "reflection.total_tokens is 30000.*ppo_max_token_len_per_gpu=6656 on 4",
        ),
        ("rubricem.limits.max_tokens=20000", "an episode must fit into the response"),
        ("rubricem.windw=3", "did you mean 'rubricem.window'"),
        ("~rubricem", "has no section `rubricem`"),
    ],
)
def test_a_run_that_cannot_be_is_refused(change: str, said: str, recipe: Callable[..., RunShape]) -> None:
    with pytest.raises(ConfigError, match=said):
        recipe(change)


@pytest.mark.parametrize(
    ("changes", "layout"),
    [
        ([], "async"),
        (["rubricem.ahead=0"], "sync"),
        (["trainer.v1.trainer_mode=rubricem_sync"], "sync"),
        (["trainer.v1.trainer_mode=rubricem_separate_async"], "separate"),
    ],
)
def test_the_layout_follows_from_the_mode(changes: list[str], layout: str, recipe: Callable[..., RunShape]) -> None:
    assert recipe(*changes).layout == layout


def test_the_questions_that_are_reflected_on_follow_from_the_phase_and_the_repeats(
    recipe: Callable[..., RunShape],
) -> None:
    # 32 questions a step; with repeats half of the steps have new ones
    assert recipe().reflected == 16
    assert recipe("rubricem.reflect_phase=all").reflected == 32
    assert recipe("rubricem.repeats=false").reflected == 32
    assert recipe("rubricem.repeats=false", "rubricem.meta_policy=false").reflected == 0


def test_the_parameters_of_qwen3_come_out_to_the_last_one() -> None:
    # As their model cards count them: 8.2 billion, and 0.6 billion with tied embeddings.
    assert KNOWN["qwen3-8b"].parameters == 8_190_735_360
    assert KNOWN["qwen3-0.6b"].parameters == 596_049_920
    # 2 (keys and values) x 36 layers x 8 heads x 128 x 2 bytes.
    assert KNOWN["qwen3-8b"].cache_bytes == 147_456


def test_a_models_folder_tells_its_shape(tmp_path: Path) -> None:
    fields = {
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 16,
        "vocab_size": 10,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(fields))
    shape = find_model_shape(str(tmp_path))

    # A layer: 2 x 8 x 8 + 2 x 8 x 4 for attention with heads of 4, 3 x 8 x 16 for the MLP, 2 x 8 + 2 x 4 for norms.
    assert shape.layer_parameters == 128 + 64 + 384 + 24
    assert shape.parameters == 2 * 600 + 80 + 8


@pytest.mark.parametrize("content", ["{", "[]", '{"num_hidden_layers": 2}', '{"num_hidden_layers": "many"}'])
def test_a_config_that_is_none_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match="is not the config of a supported decoder"):
        find_model_shape(str(tmp_path))
