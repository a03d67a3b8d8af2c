"""The `rubricem` section: the paper's defaults, and sentences for what is wrong with it."""

import pytest

from rubricem_agent.learn.credit import PAPER_MATRIX
from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.settings import read_section


def test_the_defaults_are_the_papers():
    settings = read_section({"questions": "a.jsonl"})
    assert (settings.credit, settings.meta_policy, settings.window) == ("stages", True, 3)
    assert settings.matrix == PAPER_MATRIX
    assert (settings.limits.max_calls, settings.limits.max_tokens, settings.bank.retrieval.top_k) == (10, 18_432, 2)
    assert (settings.reflection.total_tokens, settings.reflection.new_tokens) == (26_624, 2_048)


def test_an_unknown_key_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match="'windw', which is none; did you mean 'window'"):
        read_section({"almanac": {}, "windw": 3})


def test_an_unknown_key_is_found_at_any_depth():
    with pytest.raises(ConfigError, match=r"rubricem\.bank\.retrieval has the key 'topk'.*'top_k'"):
        read_section({"almanac": {}, "bank": {"retrieval": {"topk": 2}}})


def test_a_key_of_an_optional_section_is_checked_as_well():
    with pytest.raises(ConfigError, match=r"rubricem\.almanac\.knobs has the key 'nois'.*'noise'"):
        read_section({"almanac": {"knobs": {"nois": 0.1}}})


def test_a_matrix_with_weight_below_its_diagonal_is_refused():
    with pytest.raises(ConfigError, match="below the diagonal"):
        read_section({"almanac": {}, "matrix": [[1, 0, 0, 0], [0.5, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]})


def test_reflections_without_chance_cannot_be_trained_on():
    with pytest.raises(ConfigError, match=r"reflection\.temperature is 0"):
        read_section({"almanac": {}, "reflection": {"temperature": 0}})
    read_section({"almanac": {}, "reflection": {"temperature": 0}, "meta_policy": False})


def test_a_section_without_questions_is_refused_with_both_ways_out():
    with pytest.raises(ConfigError, match=r"rubricem\.questions.*almanac"):
        read_section({})


def test_a_config_without_the_section_says_where_to_start():
    with pytest.raises(ConfigError, match="verl_almanac_cpu"):
        read_section(None)
