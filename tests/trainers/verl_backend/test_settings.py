"""The `rubricem` section of a veRL config."""

from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from rubricem_agent.learn.credit import PAPER_MATRIX
from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.settings import VerlSettings, read_section, relative_paths


def test_the_defaults_are_the_papers():
    settings = read_section({"questions": "a.jsonl", "tools": {"backend": "web"}})
    assert (settings.credit, settings.meta_policy, settings.window) == ("stages", True, 3)
    assert settings.matrix == PAPER_MATRIX
    assert (settings.limits.max_calls, settings.limits.max_tokens, settings.bank.retrieval.top_k) == (10, 18_432, 2)
    assert (settings.reflection.total_tokens, settings.reflection.new_tokens) == (26_624, 2_048)


@pytest.mark.parametrize("tools", [{}, {"cache": {"entries": 5}}])
def test_questions_about_the_real_world_are_not_searched_in_the_almanac_unasked(tools):
    with pytest.raises(ConfigError, match=r"a\.jsonl are about the real world, and rubricem\.tools names no backend"):
        read_section({"questions": "a.jsonl", "tools": tools})
    assert read_section({"questions": "a.jsonl", "tools": {"backend": "offline"}}).tools.searches == "almanac"
    assert read_section({"almanac": {}}).tools.searches == "almanac"


BELOW = [[1, 0, 0, 0], [0.5, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"almanac": {}, "windw": 3}, "the unknown key 'windw'; did you mean 'window'"),
        ({"almanac": {}, "bank": {"retrieval": {"topk": 2}}}, r"rubricem\.bank\.retrieval has the unknown key 'topk'"),
        ({"almanac": {"knobs": {"nois": 0.1}}}, r"rubricem\.almanac\.knobs has the unknown key 'nois'.*'noise'"),
        ({"almanac": {}, "matrix": BELOW}, "below the diagonal"),
        ({"almanac": {}, "reflection": {"temperature": 0}}, r"reflection\.temperature is 0"),
        ({}, r"rubricem\.questions.*almanac"),
        (None, "verl_almanac_cpu"),
    ],
)
def test_a_section_that_no_run_can_have_is_refused_with_the_way_out(section, said):
    with pytest.raises(ConfigError, match=said):
        read_section(section)


def test_without_the_meta_policy_reflections_need_no_temperature():
    read_section({"almanac": {}, "reflection": {"temperature": 0}, "meta_policy": False})


def paths_of(model, prefix=""):
    """The dotted keys of all paths that a section can have."""
    for name, field in model.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if kind is Path:
                yield f"{prefix}{name}"
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from paths_of(kind, f"{prefix}{name}.")


def with_value(model, key, value):
    name, _, rest = key.partition(".")
    return model.model_copy(update={name: with_value(getattr(model, name), rest, value) if rest else value})


def test_every_path_of_a_section_is_absolute_for_workers_that_run_in_other_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = sorted(paths_of(VerlSettings))
    assert {"questions", "prompts", "bank.folder", "tools.cache.path", "tools.corpus", "judge.prompts"} <= set(keys)
    settings = read_section({"almanac": {}, "held_out_judge": {"judge": {"judge": "a:b"}}})

    for key in keys:
        settings = with_value(settings, key, Path("one") / key.rpartition(".")[2])

    assert dict(relative_paths(settings)) == {key: tmp_path / "one" / key.rpartition(".")[2] for key in keys}
    assert not list(relative_paths(read_section({"almanac": {}})))


def test_a_path_of_the_users_home_is_found_there():
    settings = read_section({"questions": "~/a.jsonl", "tools": {"backend": "web"}})
    assert dict(relative_paths(settings)) == {"questions": Path.home() / "a.jsonl"}
