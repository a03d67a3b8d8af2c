"""A run in other stages: played, judged by rules, credited and trained for two steps; and what is refused."""

import asyncio
import json

import pytest

from rubricem_agent.reflection.candidates import ReflectionSettings
from rubricem_env.domain.errors import ConfigError
from rubricem_env.env.episode import EpisodeLimits
from rubricem_records.files.packed_lines import PACKED, read_packed
from rubricem_records.rollouts.attempts import read_attempts
from rubricem_records.rollouts.run_record import RECORD_FOLDER, ROLLOUTS
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.report import render_report
from tests.letter_writer import learn_letter, write_briefs
from tests.scaffolds import WRITING
from trainers.local.run import make_run, open_services
from trainers.local.settings import LocalConfig
from trainers.local.ssgrpo import train


@pytest.fixture
def writing(tmp_path):
    """A policy that has learnt one letter by heart, and two briefs."""
    return dict(
        policy=learn_letter(tmp_path / "policy"),
        out=tmp_path / "run",
        data=write_briefs(tmp_path / "briefs.jsonl"),
        tools="none",
        scaffold="writing",
        system="Write.",
        steps=2,
        temperature=1.3,
        questions_per_step=1,
        group_size=4,
        window=1,
        learning_rate=1e-2,
        max_turn_tokens=200,
        limits=EpisodeLimits(max_tokens=300),
        reflection=ReflectionSettings(num_candidates=2, total_tokens=4_000, new_tokens=12),
        evaluate_every=2,
        checkpoint_every=2,
        probe=False,
    )


def test_a_writer_is_trained_for_two_steps(writing):
    config = LocalConfig(**writing)

    async def run() -> None:
        async with open_services(config) as (toolbox, judge):
            await train(make_run(config, toolbox, judge))

    asyncio.run(run())
    rows = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "encounter" in row]
    assert len(steps) == 2
    assert all(list(row["judged"]) == ["outline", "draft", "revise", "final"] for row in steps)
    trained = [row["task"]["stages"] for row in steps if row["task"]]
    assert trained
    assert all({*stages} <= {*WRITING.scaffold.names} for stages in trained)
    recorded = list(read_packed(config.out / RECORD_FOLDER / f"{ROLLOUTS}{PACKED}"))
    assert json.loads(recorded[0])["rollout"]["trajectory"]["scaffold"]["name"] == "writing"
    reader = RunRecordReader(config.out)
    reader.refresh()
    assert (reader.stages, len(reader.table.rows)) == (WRITING.scaffold.names, len(recorded))
    assert "outline" in render_report(config.out)
    assert len(list(read_attempts(config.out))) == len(recorded)


def test_the_almanac_and_a_matrix_of_another_size_are_refused(writing):
    with pytest.raises(ConfigError, match="the questions of the world almanac are of the stages plan"):
        LocalConfig(**{**writing, "data": None})
    with pytest.raises(ConfigError, match="matrix has 2 rows and the scaffold writing 4 stages"):
        LocalConfig(**writing, matrix=((1.0, 0.5), (0.0, 1.0)))
    with pytest.raises(ConfigError, match="there is no stage set 'writin'; did you mean 'writing'"):
        LocalConfig(**{**writing, "scaffold": "writin"})
