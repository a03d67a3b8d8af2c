"""The `rubricem` section, the stream of questions, and a worker's share of the limits."""

import json

import numpy as np
import pytest

from rubricem_agent.config.tools import ToolsConfig, read_tools_config
from rubricem_agent.learn.credit import PAPER_MATRIX
from rubricem_agent.learn.curriculum import Curriculum
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.trajectory import Query
from trainers.verl_backend.question_stream import CurriculumStream
from trainers.verl_backend.settings import read_section
from trainers.verl_backend.worker_tools import share_of


def test_the_defaults_are_the_papers():
    settings = read_section({"questions": "a.jsonl"})
    assert (settings.credit, settings.meta_policy, settings.window) == ("stages", True, 3)
    assert settings.matrix == PAPER_MATRIX
    assert (settings.limits.max_calls, settings.limits.max_tokens, settings.bank.retrieval.top_k) == (10, 18_432, 2)
    assert (settings.reflection.total_tokens, settings.reflection.new_tokens) == (26_624, 2_048)


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


QUERIES = {query.key: query for query in (Query(question=f"How wide is river {n}?") for n in range(8))}


def stream(*, window=2):
    curriculum = Curriculum(list(QUERIES), batch_size=2, window=window, rng=np.random.default_rng(0))
    return CurriculumStream(curriculum, QUERIES)


def asked(row):
    return (row["query"][0], row["encounter"][0], row["lesson_step"][0])


def test_prompts_come_one_by_one_and_each_window_comes_twice():
    rows = [asked(next(iter_)) for iter_ in [stream()] for _ in range(8)]
    assert [row[1] for row in rows] == ["new"] * 4 + ["repeat"] * 4
    assert [row[0] for row in rows[:4]] == [row[0] for row in rows[4:]]
    assert [row[2] for row in rows] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_stream_resumed_between_two_prompts_of_a_step_goes_on_with_the_second():
    first = stream()
    next(first)
    state = json.loads(json.dumps(first.state_dict()))
    other = stream()
    other.load_state_dict(state)
    assert [asked(next(other)) for _ in range(6)] == [asked(next(first)) for _ in range(6)]


def test_a_stream_of_another_window_is_refused():
    with pytest.raises(UsageError, match="window 2, this run has 1"):
        stream(window=1).load_state_dict(stream().state_dict())


def test_every_column_holds_one_object_as_verl_collates_them():
    row = next(stream())
    assert {len(column) for column in row.values()} == {1}
    assert row["raw_prompt"][0][0]["role"] == "user"
    assert {column.dtype for column in row.values()} == {np.dtype(object)}


WORKERS = 8


def test_eight_shares_are_no_more_than_the_whole():
    whole = read_tools_config(
        {
            "backend": "web",
            "budget": {"calls": 1_001, "dollars": 20.0},
            "mounted": ({"name": "notes", "url": "http://127.0.0.1:1/mcp", "concurrency": 17},),
        }
    )
    share = share_of(whole, WORKERS)
    # One limiter keeps the rates of all workers together.
    assert (share.google_search, share.snippet_search) == (whole.google_search, whole.snippet_search)
    assert share.mounted[0].concurrency == 2
    assert (share.budget.calls, share.budget.dollars) == (125, 2.5)


def test_a_share_is_at_least_one_and_no_limit_stays_none():
    share = share_of(ToolsConfig(), WORKERS)
    assert share.budget == ToolsConfig().budget
    assert share_of(ToolsConfig(), 1) == ToolsConfig()
