"""A run in the world of tables: played with run_sql, judged and evaluated by truth, credited in three stages."""

import asyncio
import json

import pytest

from rubricem_agent.reflection.candidates import ReflectionSettings
from rubricem_env.domain.errors import ConfigError
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.world.tables.analyst import TableAnalyst
from tests.learnt_by_heart import learn_by_heart
from trainers.local.run import make_run, open_services, read_run_questions, tables_to_train_on
from trainers.local.settings import LocalConfig
from trainers.local.ssgrpo import train

STAGES = ["frame", "analyse", "report"]
QUESTION = next(question for question in tables_to_train_on().questions if question.kind == "volume")


@pytest.fixture
def settings(tmp_path):
    """A policy that has learnt the first turn of one attempt by heart."""
    return dict(
        policy=learn_by_heart(tmp_path / "policy", TableAnalyst(QUESTION).turn([])),
        out=tmp_path / "run",
        scaffold="data_analysis",
        world="tables",
        meta_policy=False,
        steps=2,
        questions_per_step=1,
        group_size=4,
        learning_rate=1e-3,
        system="Write.",
        max_turn_tokens=400,
        limits=EpisodeLimits(max_tokens=900),
        reflection=ReflectionSettings(num_candidates=2, total_tokens=4_000, new_tokens=12),
        held_out_limit=2,
        evaluate_every=2,
        checkpoint_every=2,
        probe=False,
    )


def test_a_run_plays_judges_and_evaluates_in_three_stages(settings):
    config = LocalConfig(**settings)

    async def run() -> None:
        async with open_services(config) as (toolbox, judge):
            assert toolbox.names == ("run_sql",)
            assert judge is None
            await train(make_run(config, toolbox, judge))

    asyncio.run(run())
    rows = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    evaluated = [row for row in rows if "held_out" in row]
    assert [list(row["held_out"]) for row in evaluated] == [STAGES, STAGES]
    assert {row["by"] for row in evaluated} == {"truth"}
    assert all(list(row["judged"]) == STAGES for row in rows if "encounter" in row)


def test_no_question_is_trained_on_and_held_out(settings):
    train_on, held_out, truth = read_run_questions(LocalConfig(**{**settings, "held_out_limit": None}))

    assert len(train_on) > 100
    assert len(held_out) > 50
    assert not set(train_on) & {query.key for query in held_out}
    assert {truth[query.key].split for query in held_out} == {"validation"}


def test_a_world_and_stages_that_do_not_fit_are_refused(settings):
    with pytest.raises(ConfigError, match="the questions of the world almanac are of the stages plan"):
        LocalConfig(**{**settings, "world": "almanac"})
    with pytest.raises(ConfigError, match="the questions of the world tables are of the stages frame, analyse, report"):
        LocalConfig(**{**settings, "scaffold": "deep_research"})
    with pytest.raises(ConfigError, match="credit igpo asks for the gold answers of the almanac"):
        LocalConfig(**settings, credit="igpo")
