"""Reflections as rows of veRL's queue, time-outs, and the reports of a step."""

import time

import numpy as np
import pytest

from rubricem_agent.learn.metrics import parse_line
from rubricem_agent.learn.samples import Sample
from trainers.verl_backend.reporting import TokenRow, flat_metrics, lesson_means, rollout_means, stage_means
from trainers.verl_backend.rows import Credentials, Marks, RolloutHabits, TrainableReflections, phase_row
from trainers.verl_backend.time_limits import TimeLimitError, WorkerLostError, within

SAMPLE = Sample(
    token_ids=[7, 7, 1, 2, 3],
    stage_ids=[-1, -1, 0, 0, 0],
    advantages=np.array([0, 0, 1.5, 1.5, 1.5]),
    rollout_logprobs=[0, 0, -0.1, -0.2, -0.3],
    temperature=0.7,
    policy_version=4,
)


def test_a_reflection_is_split_where_the_policy_begins_to_write():
    row = phase_row(SAMPLE, uid="u", step=5)
    assert row.fields["prompts"].tolist() == [7, 7]
    assert row.fields["responses"].tolist() == [1, 2, 3]
    assert row.fields["response_mask"].tolist() == [1, 1, 1]
    assert np.allclose(row.fields["rollout_log_probs"], [-0.1, -0.2, -0.3])
    assert row.advantages.tolist() == [1.5, 1.5, 1.5]
    assert (row.tag["seq_len"], row.tag["min_global_steps"]) == (5, 4)


def test_a_call_that_hangs_ends_with_a_sentence_that_names_the_setting():
    with pytest.raises(TimeLimitError, match=r"could not bring the weights in 0.05 seconds.*raise a\.b"):
        within(0.05, "bring the weights", lambda: time.sleep(1), setting="a.b")


def test_what_a_call_returns_or_raises_comes_through():
    assert within(5, "add", lambda: 1 + 1, setting="a.b") == 2
    with pytest.raises(KeyError):
        within(5, "look", lambda: {}["absent"], setting="a.b")


def test_whoever_watches_a_call_can_end_the_wait():
    def watch():
        raise WorkerLostError("a process of the run is gone")

    with pytest.raises(WorkerLostError, match="is gone"):
        within(5, "sample", lambda: time.sleep(1), setting="a.b", watch=watch, every=0.01)


def credentials(answer: float, *, judged: float | None, encounter: str = "new", valid: bool = True) -> Credentials:
    marks = Marks((0, 0, 0, answer), (None, None, None, judged), is_valid=valid, true=(0, 0, 0, answer))
    habits = RolloutHabits(answer_words=10, calls=2, repeated_calls=1, is_valid=True)
    return Credentials(marks, np.array([0, -1, 3], dtype=np.int8), key="k", encounter=encounter, habits=habits)


def test_a_stage_without_a_score_is_none_and_not_zero():
    told = rollout_means([credentials(1.0, judged=0.5), credentials(0.0, judged=None, valid=False)])
    assert told["judged"] == {"plan": None, "research": None, "review": None, "answer": 0.5}
    assert told["true"]["answer"] == 0.5
    assert (told["habits"]["repeated_calls"], told["habits"]["policy_tokens"], told["lost"]) == (0.5, 4, 1)


def test_a_step_outside_the_almanac_has_no_truth_and_its_line_can_be_read():
    marks = Marks((0, 0, 0, 1.0), (None, None, None, 1.0), is_valid=True)
    row = credentials(1.0, judged=1.0)
    told = rollout_means([Credentials(marks, row.stage_ids, key="k", encounter="new", habits=row.habits)])
    assert told["true"] == {}
    assert parse_line({"step": 1, **told}).judged["answer"] == 1.0


def test_stages_are_told_apart_token_by_token():
    row = TokenRow(
        np.array([0, 0, 3, -1]),
        np.array([1.0, -1.0, 2.0, 9.0]),
        entropy=np.array([1.0, 3.0, 5.0, 9.0]),
        kl=np.array([0.0, 0.2, 0.4, 9.0]),
    )
    told = stage_means([row])
    # plan: 2 tokens of weight 1 each; answer: 1 token of weight 2; the tool's token counts nowhere
    assert told["plan"] == {"tokens": 2, "entropy": 2.0, "kl": 0.1, "loss_share": 0.5}
    assert told["answer"] == {"tokens": 1, "entropy": 5.0, "kl": 0.4, "loss_share": 0.5}
    assert "review" not in told


def test_a_step_without_reflections_has_no_utility():
    lessons = TrainableReflections((), ("late",), (), pending=2, bank=3)
    assert lesson_means(lessons)["utility"] is None
    flat = flat_metrics(lesson_means(lessons))
    assert (flat["rubricem/bank"], flat["rubricem/failed_reflections/count"]) == (3.0, 1.0)
    assert "rubricem/utility" not in flat
