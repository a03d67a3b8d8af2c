"""What a local run records: each attempt as the judge and the credit had it, each step once also after a resume."""

import asyncio

import numpy as np
import pytest

from rubricem_agent.learn.credit import assign_credit
from rubricem_env.judge.masking import group_scores
from rubricem_viewer.record_reader import RunRecordReader
from trainers.local.run import make_run
from trainers.local.ssgrpo import train

pytestmark = pytest.mark.no_cover


def run(config):
    asyncio.run(train(make_run(config)))
    reader = RunRecordReader(config.out)
    reader.refresh()
    return reader


def test_a_record_holds_every_attempt_with_the_credit_that_it_was_trained_with(config):
    reader = run(config)

    number = reader.find_group("1-0")
    rollouts = [reader.read_rollout(row) for row in reader.table.of_group(number).tolist()]
    assert len(reader.table.rows) == 2 * config.questions_per_step * config.group_size
    credit = assign_credit(group_scores([one.judged.judgement for one in rollouts])[0])
    np.testing.assert_allclose([one.advantages for one in rollouts], credit.advantages, atol=1e-9)
    assert all(one.tokens is not None and one.tokens.unpack()[1].max() <= 3 for one in rollouts)
    # The tokens are packed; a rollout does not hold them a second time.
    assert all(one.rollout.tokens is None for one in rollouts)


def test_a_stopped_and_resumed_run_records_each_attempt_once(config, tmp_path):
    whole = run(config)
    parts = config.model_copy(update={"out": tmp_path / "parts"})
    run(parts.model_copy(update={"steps": 1}))

    resumed = run(parts)

    assert [row.id for row in resumed.groups] == [row.id for row in whole.groups]
    assert resumed.table.rows["scores"].tolist() == whole.table.rows["scores"].tolist()


def test_a_run_may_be_resumed_with_a_record_that_it_began_without(config):
    run(config.model_copy(update={"record": False, "steps": 1}))

    reader = run(config)

    assert {row.step for row in reader.groups} == {2}
