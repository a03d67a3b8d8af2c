"""Every config for veRL in the repository composes over veRL's own, and its section is one that we accept."""

import re
from pathlib import Path

import pytest
import verl
import yaml
from omegaconf import OmegaConf
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import validate_config

from rubricem_agent.yaml_config import read_yaml
from rubricem_env.domain.errors import ConfigError
from tests.trainers.verl_backend.planning.paper_numbers import RECIPES, numbers_of, with_defaults
from tests.trainers.verl_backend.planning.test_configs import flat
from trainers.verl_backend.launch import read_config
from trainers.verl_backend.planning.run_shape import read_run_shape, value_at
from trainers.verl_backend.refusals import RULES
from trainers.verl_backend.settings import SECTION, read_section

CONFIGS = sorted((Path(__file__).parents[3] / "configs").glob("verl_*.yaml"))
CPU = next(path for path in CONFIGS if path.stem == "verl_almanac_cpu")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_composes_and_its_section_is_whole(path):
    config = read_config(path, [])
    settings = read_section(OmegaConf.to_container(config[SECTION], resolve=True))
    assert config.trainer.v1.trainer_mode.startswith("rubricem_")
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == "rubricem"
    length = config.actor_rollout_ref.rollout.max_model_len
    window = read_run_shape(OmegaConf.to_container(config, resolve=True)).longest_window
    assert length >= (window or config.data.max_prompt_length + settings.limits.max_tokens)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_the_papers_numbers_over_verls_defaults_and_passes_verls_own_checks(name):
    config = read_config(CPU.with_name(f"{name}.yaml"), [])
    OmegaConf.resolve(config)
    plain = with_defaults(OmegaConf.to_container(config))
    expected = numbers_of(name)
    assert {key: value_at(plain, key, None) for key in expected} == expected
    assert need_reference_policy(config)
    assert not need_critic(config)
    validate_config(config=config, use_reference_policy=True, use_critic=False)


def test_a_key_of_our_section_can_be_changed_whether_it_stands_in_the_file_or_not():
    config = read_config(CPU, ["rubricem.window=2", "rubricem.credit=answer_only"])
    assert (config.rubricem.window, config.rubricem.credit) == (2, "answer_only")


def test_a_key_of_verls_that_there_is_not_is_refused_in_a_sentence():
    with pytest.raises(ConfigError, match=r"verl_almanac_cpu.yaml is refused.*trainer.total_step"):
        read_config(CPU, ["trainer.total_step=3"])


@pytest.mark.parametrize("mode", ["sync", "rubricem_async", "rubricem_separate"])
def test_what_the_refusals_take_for_verls_own_value_of_a_key_is_its_own(mode, tmp_path):
    plain = {"hydra": {"searchpath": ["pkg://verl.trainer.config"]}, "defaults": ["ppo_trainer", "_self_"]}
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(plain))
    composed, given = read_config(tmp_path / "plain.yaml", [f"trainer.v1.trainer_mode={mode}"]), {}

    def read(key, own):
        given[key] = own if key != "trainer.v1.trainer_mode" else mode
        return value_at(composed, key, own)

    for rules in RULES:
        list(rules(read, read_section({"almanac": {}, "context": {"fold_at": 9_000}})))
    assert len(given) > 15
    assert {key: value_at(composed, key, own) for key, own in given.items()} == given


HANDED_ON = ("hydra.", "defaults", "rubricem.", "ray_kwargs.ray_init.", "transfer_queue.backend.")
"""Sections that Hydra, our own schema, Ray and the queue read and check."""


def names_read() -> set[str]:
    """Every name that veRL or our backend reads: after a dot, or quoted.

    veRL's config classes are left out: they declare keys, and a key that nobody else names has no effect.
    """
    folders = (Path(verl.__file__).parent, CPU.parents[1] / "trainers" / "verl_backend")
    files = [file for folder in folders for file in folder.rglob("*.py") if file.parent.name != "config"]
    return {name for file in files for name in re.findall(r"""[."'](\w+)""", file.read_text(errors="replace"))}


@pytest.fixture(scope="module")
def read() -> set[str]:
    return names_read()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_something_reads_every_key_of_a_file(path, read):
    keys = [key for key in flat(read_yaml(path)) if not key.startswith(HANDED_ON)]
    assert len(keys) > 30
    assert [key for key in keys if key.rpartition(".")[2] not in read] == []


def test_a_key_that_veRL_declares_and_nothing_reads_is_found(read):
    """`actor.grad_clip`, which our files had: the engine reads `optim.clip_grad`."""
    assert "grad_clip" not in read
    assert "clip_grad" in read
