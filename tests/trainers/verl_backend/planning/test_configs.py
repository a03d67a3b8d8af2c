"""The shipped recipes say what the paper says, and differ only where the paper's ablation does."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rubricem_agent.yaml_config import read_yaml
from tests.trainers.verl_backend.planning.conftest import CONFIGS
from tests.trainers.verl_backend.planning.paper_numbers import (
    ABLATIONS,
    PAPER_ABLATIONS,
    PAPER_FILE,
    RECIPES,
    SFT_ROWS,
    numbers_of,
    values_of,
)
from trainers.fine_tuning.settings import SftConfig
from trainers.settings import read_settings
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
    "rubricem.repeats",
    "rubricem.tools.cache.path",
}
"""What an ablation may have of its own."""
NAMES = {"trainer.experiment_name", "trainer.default_local_dir", "hydra.run.dir", "rubricem.tools.cache.path"}
"""What every file has of its own."""
PAGE = Path(__file__).parents[4] / "docs" / "paper_exact.md"


def config(name: str) -> dict[str, Any]:
    return read_yaml(CONFIGS / f"{name}.yaml")


def flat(value: Any, key: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {key: value}
    return {
        name: leaf for part, inner in value.items() for name, leaf in flat(inner, f"{key}.{part}".strip(".")).items()
    }


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_papers_numbers(name: str) -> None:
    expected, composed = numbers_of(name), values_of(name)
    assert {key: value_at(composed, key, None) for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "whole"),
    [*((name, "verl_rubricem_8b") for name in ABLATIONS), *((n, PAPER_FILE) for n in PAPER_ABLATIONS)],
)
def test_an_ablation_differs_in_credit_and_meta_policy_and_has_600_steps_on_2_nodes(name: str, whole: str) -> None:
    complete, part = flat(values_of(whole)), flat(values_of(name))
    own = {**ABLATIONS, **PAPER_ABLATIONS}[name]

    assert {key for key in complete.keys() | part.keys() if complete.get(key) != part.get(key)} <= OWN
    assert (part["rubricem.credit"], part["rubricem.meta_policy"], part["rubricem.repeats"]) == own
    assert (part["trainer.total_training_steps"], part["trainer.nnodes"]) == (600, 2)


def test_the_page_lists_every_departure_with_its_key_and_both_values() -> None:
    own, exact = flat(values_of("verl_rubricem_8b")), flat(values_of(PAPER_FILE))
    departures = {key: (exact.get(key), own.get(key)) for key in own.keys() | exact.keys()}
    departures = {key: pair for key, pair in departures.items() if pair[0] != pair[1] and key not in NAMES}
    # Of two ablations.
    departures["rubricem.repeats"] = (False, True)
    table = PAGE.read_text(encoding="utf-8").split("## Departures")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \| `([^`]+)` \| `([^`]+)` \| (.+) \|$", table, re.MULTILINE)
    assert {key: (yaml.safe_load(there), yaml.safe_load(here)) for key, there, here, _ in rows} == departures
    assert all(len(reason) > 10 for *_, reason in rows)


def test_the_fine_tuning_has_the_papers_numbers() -> None:
    settings = read_settings(Path("sft_qwen3_8b"), SftConfig).model_dump(mode="json")
    expected = {key: value for row in SFT_ROWS for key, value in row.keys.items()}
    assert {key: settings[key] for key in expected} == expected
    machines = read_yaml(CONFIGS / "accelerate_zero3.yaml")
    zero = json.loads((CONFIGS / "deepspeed_zero3.json").read_text())
    assert (machines["num_processes"], zero["zero_optimization"]["stage"], zero["bf16"]["enabled"]) == (8, 3, True)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_read_whole_and_keeps_its_checkpoints_to_itself(name: str) -> None:
    settings = read_section(config(name)["rubricem"])

    assert str(settings.questions) == "data/dr_tulu_rl.jsonl"
    assert name in config(name)["trainer"]["default_local_dir"]
    assert name in str(settings.tools.cache.path)


MACHINES = {
    "actor_rollout_ref.ref.fsdp_config.fsdp_size",
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
        "rubricem.judge.rates.tokens_per_minute",
        "rubricem.tools.backend",
        "rubricem.tools.cache.path",
        "rubricem.tools.corpus",
        "trainer.experiment_name",
        "trainer.default_local_dir",
        "hydra.run.dir",
    }


def test_the_lean_variant_differs_in_search_age_of_rollouts_and_reflection_prompts_alone() -> None:
    tuned, lean = flat(config("verl_rubricem_8b_h100")), flat(config("verl_rubricem_8b_lean"))
    assert {key for key in tuned.keys() | lean.keys() if tuned.get(key) != lean.get(key)} == {
        "rubricem.ahead",
        "rubricem.reflection.total_tokens",
        "rubricem.tools.google_search.engine",
        "rubricem.tools.snippet_search",
        "rubricem.tools.cache.path",
        "trainer.experiment_name",
        "trainer.default_local_dir",
        "hydra.run.dir",
    }
