"""The shipped recipes say what the paper says, and differ only where the paper's ablation does."""

from typing import Any

import pytest

from rubricem_agent.yaml_config import read_yaml
from tests.trainers.verl_backend.planning.conftest import CONFIGS
from tests.trainers.verl_backend.planning.paper_numbers import ABLATIONS, numbers_of
from trainers.verl_backend.planning.run_shape import value_at
from trainers.verl_backend.settings import read_section

pytestmark = pytest.mark.no_cover

OWN = {
    "trainer.nnodes",
    "trainer.total_training_steps",
    "trainer.experiment_name",
    "trainer.default_local_dir",
    "hydra.run.dir",
    "rubricem.credit",
    "rubricem.meta_policy",
    "rubricem.tools.cache.path",
}
"""What an ablation may have of its own."""


def config(name: str) -> dict[str, Any]:
    return read_yaml(CONFIGS / f"{name}.yaml")


def flat(value: Any, key: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {key: value}
    return {
        name: leaf for part, inner in value.items() for name, leaf in flat(inner, f"{key}.{part}".strip(".")).items()
    }


@pytest.mark.parametrize("name", ["verl_rubricem_8b", *ABLATIONS])
def test_a_recipe_has_the_papers_numbers(name: str) -> None:
    expected = numbers_of(name)
    assert {key: value_at(config(name), key, "missing") for key in expected} == expected


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_differs_in_credit_and_meta_policy_and_has_600_steps_on_2_nodes(name: str) -> None:
    whole, part = flat(config("verl_rubricem_8b")), flat(config(name))
    credit, meta_policy = ABLATIONS[name]

    assert {key for key in whole.keys() | part.keys() if whole.get(key) != part.get(key)} <= OWN
    assert (part["rubricem.credit"], part["rubricem.meta_policy"]) == (credit, meta_policy)
    assert (part["trainer.total_training_steps"], part["trainer.nnodes"]) == (600, 2)


@pytest.mark.parametrize("name", ["verl_rubricem_8b", *ABLATIONS])
def test_every_recipe_is_read_whole_and_keeps_its_checkpoints_to_itself(name: str) -> None:
    settings = read_section(config(name)["rubricem"])

    assert str(settings.questions) == "data/dr_tulu_rl.jsonl"
    assert name in config(name)["trainer"]["default_local_dir"]
    assert name in str(settings.tools.cache.path)


MACHINES = {
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "actor_rollout_ref.actor.fsdp_config.fsdp_size",
    "actor_rollout_ref.actor.fsdp_config.param_offload",
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload",
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "actor_rollout_ref.rollout.gpu_memory_utilization",
    "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu",
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes",
    "reward.num_workers",
    "trainer.nnodes",
    "trainer.experiment_name",
    "trainer.default_local_dir",
    "rubricem.tools.cache.path",
    "hydra.run.dir",
}
"""What the variant for H100s may have of its own: nothing that changes what is learnt."""


def test_the_variant_for_h100s_is_the_papers_recipe_on_other_machines() -> None:
    paper, tuned = flat(config("verl_rubricem_8b")), flat(config("verl_rubricem_8b_h100"))
    assert {key for key in paper.keys() | tuned.keys() if paper.get(key) != tuned.get(key)} == MACHINES


def test_the_variant_with_own_servers_differs_in_judge_and_documents_alone() -> None:
    tuned, local = flat(config("verl_rubricem_8b_h100")), flat(config("verl_rubricem_8b_local"))
    assert {key for key in tuned.keys() | local.keys() if tuned.get(key) != local.get(key)} == {
        "rubricem.judge.judge",
        "rubricem.tools.backend",
        "rubricem.tools.cache.path",
        "rubricem.tools.corpus",
        "trainer.experiment_name",
        "trainer.default_local_dir",
        "hydra.run.dir",
    }
