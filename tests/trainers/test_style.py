"""A flat policy, which thinks and acts without stages, in both trainers: the paper's figure 6 (b)."""

from pathlib import Path

import pytest

from rubricem_agent.prompting import agent_prompt
from rubricem_env.domain.errors import ConfigError
from rubricem_env.env import shipped_toolbox
from rubricem_env.testing.tiny_model import tiny_qwen3, tiny_tokenizer
from trainers.local.run import make_run
from trainers.local.settings import LocalConfig
from trainers.settings import read_settings
from trainers.verl_backend.settings import read_section

CONFIGS = Path(__file__).parents[2] / "configs"
FLAT = {"style": "react", "credit": "answer_only", "meta_policy": "false"}


def read(tmp_path, **changes):
    given = {"out": str(tmp_path), "system": '""', "reflection.total_tokens": "16384", **changes}
    changed = [f"{key}={value}" for key, value in given.items()]
    return read_settings(CONFIGS / "local_almanac.yaml", LocalConfig, changes=changed)


@pytest.fixture
def long_policy(tmp_path):
    """A policy whose context has room for the whole prompts."""
    tokenizer = tiny_tokenizer(["<think>t</think>"])
    model = tiny_qwen3(len(tokenizer), max_length=65_536)
    tokenizer.save_pretrained(tmp_path / "policy")
    model.save_pretrained(tmp_path / "policy")
    return str(tmp_path / "policy")


def test_a_flat_policy_is_told_to_think_and_act(tmp_path, long_policy):
    tools = shipped_toolbox().names
    given = {"policy": long_policy, "reflection.total_tokens": "65536"}
    assert make_run(read(tmp_path, **given, **FLAT)).prompt == agent_prompt(tools, style="react")
    assert make_run(read(tmp_path, **given)).prompt == agent_prompt(tools)


@pytest.mark.parametrize(("key", "value"), [("credit", "stages"), ("meta_policy", "true")])
def test_a_flat_policy_has_no_stages_to_credit_or_reflect_on(tmp_path, key, value):
    with pytest.raises(ConfigError, match="set credit answer_only and meta_policy false"):
        read(tmp_path, **{**FLAT, key: value})
    section = {"almanac": {}, **FLAT, "meta_policy": False, key: value == "true" if key == "meta_policy" else value}
    with pytest.raises(ConfigError, match="set credit answer_only and meta_policy false"):
        read_section(section)
