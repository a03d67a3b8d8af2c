"""The credit that the trainer submits for the record: each row's, under the group and the index of its key."""

from types import SimpleNamespace

import numpy as np
import pytest

from rubricem_agent.learn.credit import Credit
from rubricem_env.domain.errors import UsageError
from trainers.verl_backend import trainer
from trainers.verl_backend.trainer import AsyncStageTrainer

RETURNS = np.array([[2.0, 1.0, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]])
CREDIT = Credit(RETURNS, RETURNS / 2, np.array([True, False]), ())


class FakeService:
    """Takes the credit to record; the handle of a call is its arguments."""

    def __init__(self):
        self.record = SimpleNamespace(remote=lambda *arguments: arguments)


def phase(*, record=True):
    made = object.__new__(AsyncStageTrainer)
    made.settings, made.judge_service = SimpleNamespace(record=record), FakeService()
    made.global_steps, made._rows, made._pending_record = 7, {"ab_0_0": None, "ab_1_0": None}, None
    made._credit = CREDIT
    return made


def test_each_rows_credit_is_recorded_under_the_trainers_step():
    made = phase()
    made._begin_record()
    assert made._pending_record == (7, [("ab", 0), ("ab", 1)], CREDIT)


def test_nothing_is_submitted_where_no_record_is_kept():
    made = phase(record=False)
    made._begin_record()
    assert made._pending_record is None


def test_a_record_that_failed_stops_the_run_when_the_step_is_written_down(monkeypatch):
    def failed(recording):
        raise UsageError("cannot write the record")

    monkeypatch.setattr(trainer.ray, "get", failed)
    made = phase()
    made._begin_record()
    with pytest.raises(UsageError, match="cannot write the record"):
        made._finish_record()
