"""A stage set of the user's own on veRL: the folder's value reaches every process, and a policy is trained in it."""

import shutil

import pytest

from rubricem_env.domain.stage_set import stage_set_folder
from rubricem_viewer.record_reader import RunRecordReader
from rubricem_viewer.report import render_report
from tests.lanes.verl.runs import LIMIT, SMALL, started
from tests.letter_writer import learn_letter, write_briefs

STAGES = ("outline", "draft", "revise", "final")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("letters")
    own = folder / "letters"
    shutil.copytree(stage_set_folder("writing"), own)
    changes = (
        *SMALL,
        f"rubricem.scaffold={own}",
        "rubricem.almanac=null",
        f"rubricem.questions={write_briefs(folder / 'briefs.jsonl', ('tea', 'dinner', 'lunch', 'supper'))}",
        "rubricem.tools={backend: none}",
        "rubricem.judge.judge=rules",
        "rubricem.system=Write.",
        "rubricem.max_turn_tokens=200",
        "rubricem.limits.max_tokens=300",
        "actor_rollout_ref.rollout.temperature=0.8",
        "actor_rollout_ref.rollout.n=4",
        "trainer.total_training_steps=2",
        "trainer.save_freq=2",
    )
    with started(folder / "run", learn_letter(folder / "policy"), *changes) as run:
        # Whatever reads the folder again would fail.
        run.wait(LIMIT, until=lambda run: bool(run.steps))
        shutil.rmtree(own)
        code = run.wait(LIMIT)
        assert code == 0, run.tail()
        return run


def test_two_steps_are_trained_in_the_stages_of_the_set(trained):
    assert [line["step"] for line in trained.steps] == [1, 2]
    assert all(tuple(line["judged"]) == STAGES for line in trained.steps)
    updated = [line["task"]["stages"] for line in trained.steps if line["task"]]
    assert updated
    assert all({*stages} <= {*STAGES} for stages in updated)


def test_its_record_shows_the_stages(trained):
    reader = RunRecordReader(trained.folder)
    reader.refresh()

    assert reader.stages == STAGES
    assert len(reader.table.rows) == 2 * 2 * 4
    assert "outline" in render_report(trained.folder)
