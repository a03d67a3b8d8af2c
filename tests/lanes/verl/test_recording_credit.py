"""What the trainer hands to the desk for the record: each row's credit, under the group and the place of its key."""

from types import SimpleNamespace

import numpy as np
import pytest

from rubricem_env.domain.errors import UsageError
from trainers.verl_backend import trainer
from trainers.verl_backend.rows import CreditedRows, RolloutCredit
from trainers.verl_backend.trainer import AsyncStageTrainer

RETURNS = np.array([[2.0, 1.0, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]])
CREDITED = CreditedRows(RETURNS, RETURNS / 2, np.array([True, False]), ())


class FakeDesk:
    """Takes what is to be recorded; the handle of a call is what it was given."""

    def __init__(self):
        self.record = SimpleNamespace(remote=lambda step, told: (step, told))


def phase(*, record=True):
    made = object.__new__(AsyncStageTrainer)
    made.settings, made.desk = SimpleNamespace(record=record), FakeDesk()
    made.global_steps, made._rows, made._recording = 7, {"ab_0_0": None, "ab_1_0": None}, None
    return made


def test_each_rows_credit_goes_to_the_desk_under_the_trainers_step():
    made = phase()
    made._begin_recording(CREDITED)
    step, told = made._recording
    assert step == 7
    assert told == [
        RolloutCredit("ab", 0, (2.0, 1.0, 0.5, 0.5), (1.0, 0.5, 0.25, 0.25), trained=True),
        RolloutCredit("ab", 1, (0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), trained=False),
    ]


def test_nothing_is_handed_over_where_no_record_is_kept():
    made = phase(record=False)
    made._begin_recording(CREDITED)
    assert made._recording is None


def test_a_record_that_failed_stops_the_run_when_the_step_is_written_down(monkeypatch):
    def failed(recording):
        raise UsageError("cannot write the record")

    monkeypatch.setattr(trainer.ray, "get", failed)
    made = phase()
    made._begin_recording(CREDITED)
    with pytest.raises(UsageError, match="cannot write the record"):
        made._finish_recording()
