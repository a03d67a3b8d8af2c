"""A small file that unfolds into a large one is refused before anything reads it whole."""

import time

import pytest

from rubricem_agent.yaml_config import read_yaml
from rubricem_env.domain.errors import ConfigError

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(("text", "number"), [(LAUGHS, "1e\\+12"), ("policy: &p [1, *p]\nout: x\n", "inf")])
def test_a_config_whose_aliases_multiply_is_refused_in_one_sentence_at_once(tmp_path, text, number):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    began = time.process_time()
    with pytest.raises(ConfigError, match=rf"run\.yaml: its aliases stand for {number} values") as refusal:
        read_yaml(path)
    assert time.process_time() - began < 5
    assert len(str(refusal.value)) < 1_000


def test_a_few_aliases_are_read(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("limits: &l {max_calls: 3}\nothers: [*l, *l]\n")
    assert read_yaml(path) == {"limits": {"max_calls": 3}, "others": [{"max_calls": 3}, {"max_calls": 3}]}
