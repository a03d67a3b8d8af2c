"""The stage set of docs/howto/stages.md is sixty lines, and plays, is judged and trains as the page says."""

import asyncio
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'local'")

from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.stage_set import read_stage_set
from rubricem_env.domain.trajectory import Query
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.tools.base import LocalToolbox
from rubricem_viewer.report import render_report
from tests.letter_writer import learn_letter
from trainers.local.run import make_run, open_services
from trainers.local.settings import LocalConfig
from trainers.local.ssgrpo import train

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "stages.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"^```(toml|markdown|py)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "stages.toml").write_text(BLOCKS["toml"], encoding="utf-8")
    (tmp_path / "claims" / "agent.md").write_text(BLOCKS["markdown"], encoding="utf-8")
    return tmp_path / "claims"


def test_the_set_is_sixty_lines_of_toml_and_markdown(folder):
    lines = [line for kind in ("toml", "markdown") for line in BLOCKS[kind].splitlines() if line.strip()]
    assert len(lines) <= 60
    assert read_stage_set(str(folder)).scaffold.names == ("read", "check", "verdict")


def test_the_program_of_the_page_runs(folder):
    exec(compile(BLOCKS["py"], "stages.md", "exec"), {"__name__": "__main__"})


def test_its_set_trains_for_two_steps_and_shows_in_the_viewer(folder, tmp_path):
    page = {"__name__": "page"}
    exec(compile(BLOCKS["py"], "stages.md", "exec"), page)
    written = "".join(segment.text for segment in page["attempts"][0].segments[1:])
    claim = Query(
        question=page["CLAIM"].question, rubrics=(Rubric(stage="answer", title="t", description="28 tonnes"),)
    )
    (tmp_path / "claims.jsonl").write_text(claim.model_dump_json())
    config = LocalConfig(
        policy=learn_letter(tmp_path / "policy", written),
        out=tmp_path / "run",
        data=tmp_path / "claims.jsonl",
        tools="none",
        scaffold=str(folder),
        system="Review.",
        steps=2,
        temperature=1.2,
        questions_per_step=1,
        group_size=4,
        window=1,
        meta_policy=False,
        max_turn_tokens=200,
        limits=EpisodeLimits(max_tokens=500),
        evaluate_every=2,
        checkpoint_every=2,
        probe=False,
    )

    async def run():
        async with open_services(config) as (_, judge):
            await train(make_run(config, LocalToolbox(page["LookUp"]()), judge))

    asyncio.run(run())
    steps = [json.loads(line) for line in (config.out / "metrics.jsonl").read_text().splitlines()]
    judged = [tuple(line["judged"]) for line in steps if "judged" in line]
    assert judged == [("read", "check", "verdict")] * 2
    assert "verdict" in render_report(config.out)
