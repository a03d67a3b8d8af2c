"""`rubricem probe RUN`: length bias and agreement of a run's judge, from its record."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.cli.probe import length_correlation, read_attempts
from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import UsageError
from rubricem_records.rollouts.rollouts import Rollout

RUN = Path(__file__).parents[2] / "samples" / "viewer_run"


def test_a_finished_run_is_probed_by_a_judge_that_pays_for_no_padding():
    result = CliRunner().invoke(app, ["probe", str(RUN), "--sample", "4", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert (found["judges"], found["asked"], found["attempts"]) == ("almanac", "rules", 4)
    # The rules read what an answer states, and empty words state nothing.
    assert found["padding_gain"] == 0.0
    assert found["agreement"]["pairs"] > 4
    assert 0.0 <= found["agreement"]["exact"] <= 1.0


def with_answer(attempt, words, score):
    """The recorded attempt with an answer of so many words and that answer score."""
    group, entry = attempt
    trajectory = entry.rollout.trajectory
    policy = trajectory.segments[-1].model_copy(update={"text": f"<think>t</think><answer>{'w ' * words}</answer>"})
    trajectory = trajectory.model_copy(update={"segments": (*trajectory.segments[:-1], policy)})
    answer = entry.judged.judgement.outcome(Stage.ANSWER).model_copy(update={"score": score})
    judged = entry.judged.model_copy(update={"judgement": entry.judged.judgement.replaced({"answer": answer})})
    rollout = Rollout(trajectory=trajectory, policy=entry.rollout.policy)
    return group, entry.model_copy(update={"rollout": rollout, "judged": judged})


@pytest.mark.parametrize(
    ("scores", "correlation"),
    # Words 10, 20, 30 about their mean: -10, 0, 10.
    [((0.1, 0.5, 0.9), 1.0), ((0.9, 0.5, 0.1), -1.0), ((0.5, 0.9, 0.5), 0.0), ((0.5, 0.5, 0.5), None)],
)
def test_length_and_score_are_compared_within_a_group(scores, correlation):
    first = next(one for one in read_attempts(RUN) if one[1].rollout.trajectory.segments[-1].origin == "policy")
    group = [with_answer(first, words, score) for words, score in zip((10, 20, 30), scores, strict=True)]
    # A group of longer and better answers adds nothing: it is compared with itself.
    other = [(entry[0], with_answer(entry, 500, 1.0)[1].model_copy(update={"place": 99})) for entry in group[:2]]
    found = length_correlation([*group, *other])
    assert found is None if correlation is None else np.isclose(found, correlation)


def test_a_folder_without_a_record_is_one_sentence(tmp_path):
    with pytest.raises(UsageError, match="has no record of judged attempts; give a run's folder"):
        read_attempts(tmp_path)
