"""A shipped config that derives from others has the values that it had when it was written out whole.

`fixtures/composed_configs` has those files as they were, without veRL's own values.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from rubricem_agent.config_bases import BASES
from rubricem_agent.yaml_config import CONFIGS, read_yaml
from rubricem_env.domain.errors import ConfigError
from trainers.local.settings import LocalConfig
from trainers.settings import read_settings
from trainers.verl_backend.planning.run_shape import read_run_file
from trainers.verl_backend.settings import SECTION, read_section

WHOLE = sorted((Path(__file__).parent / "fixtures" / "composed_configs").glob("*.json"))
VERL = [path for path in WHOLE if path.stem.startswith("verl_")]
LOCAL = [path for path in WHOLE if not path.stem.startswith("verl_")]


def flat(value: Any, key: str = "") -> dict[str, Any]:
    """The values by dotted key; a key that is null counts as one that is not there."""
    if not isinstance(value, dict):
        return {} if value is None else {key: value}
    return {
        name: leaf for part, inner in value.items() for name, leaf in flat(inner, f"{key}.{part}".strip(".")).items()
    }


@pytest.mark.parametrize("path", VERL, ids=lambda path: path.stem)
def test_a_config_of_verl_has_the_values_of_the_whole_file(path):
    whole = json.loads(path.read_text())
    composed = read_run_file(CONFIGS / f"{path.stem}.yaml")
    assert flat(composed) == flat(whole)
    assert read_section(composed[SECTION]) == read_section(whole[SECTION])


@pytest.mark.parametrize("path", LOCAL, ids=lambda path: path.stem)
def test_a_config_of_the_local_trainer_has_the_settings_of_the_whole_file(path):
    whole = LocalConfig.model_validate(json.loads(path.read_text()), strict=False)
    assert read_settings(Path(path.stem), LocalConfig) == whole


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def test_a_file_of_ones_own_derives_from_a_shipped_one_and_from_one_beside_it(tmp_path):
    write(tmp_path, "small", "defaults: [demo_almanac]\nsteps: 3\nreflection: {new_tokens: 7}\n")
    mine = write(tmp_path, "mine", "defaults: [small, _self_]\ngroup_size: 2\n")
    settings = read_settings(mine, LocalConfig)
    assert (settings.steps, settings.group_size, settings.questions_per_step) == (3, 2, 8)
    # Sections are merged key by key.
    assert (settings.reflection.new_tokens, settings.reflection.total_tokens) == (7, 2_400)
    assert BASES not in read_yaml(mine)


def test_what_stands_after_self_wins(tmp_path):
    write(tmp_path, "more", "steps: 5\n")
    mine = write(tmp_path, "mine", "defaults: [_self_, more]\nsteps: 3\nseed: 1\n")
    assert read_yaml(mine) == {"steps": 5, "seed": 1}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("defaults: [nothing_such]\n", r"derives from nothing_such, and there is no nothing_such\.yaml"),
        ("defaults: [mine]\n", r"derives from itself: mine -> mine"),
        ("defaults: demo_almanac\n", r"give a list of names of configs"),
        ("defaults: [{actor: x}]\n", r"give a list of names of configs"),
    ],
)
def test_a_base_that_cannot_be_read_is_refused_in_one_sentence(tmp_path, text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_yaml(write(tmp_path, "mine", text))
