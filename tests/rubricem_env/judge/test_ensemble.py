"""Several judges as one."""

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import ConfigError
from rubricem_env.judge.base import Contrast, Proposal, ScoringRequest
from rubricem_env.judge.ensemble import EnsembleJudge
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import QUESTION, ScriptedJudge, attempt
from tests.rubricem_env.judge.trusted_judges import CRITERION, GROUP, constant

REQUEST = ScoringRequest(QUESTION, parse_trajectory(attempt()), (CRITERION,))


@pytest.mark.parametrize(
    ("combine", "scores", "combined"),
    [
        ("mean", (0, 1, 2, 2), 1.25),
        ("majority", (0, 2, 2), 2.0),
        ("majority", (0, 2), 0.0),
        ("trimmed", (0, 1, 2, 2), 1.5),
        ("trimmed", (0, 1), 0.5),
    ],
)
async def test_members_scores_are_combined_by_hand(combine, scores, combined):
    found = await EnsembleJudge([constant(score) for score in scores], combine=combine).score(REQUEST)
    rubric_score = found.rubric_scores[CRITERION.id]
    assert (rubric_score.score, rubric_score.scores, rubric_score.spread) == (
        combined,
        scores,
        max(scores) - min(scores),
    )
    assert rubric_score.rounded == round(combined + 0.01)  # halves round up
    assert rubric_score.justification.startswith("mean 1.25 of the scores 0, 1, 2, 2: ") == (combined == 1.25)


async def test_a_member_that_fails_is_left_out_and_said():
    found = await EnsembleJudge([constant(None), constant(1)]).score(REQUEST)
    assert (found.rubric_scores[CRITERION.id].scores, bool(found.failure)) == ((1,), True)
    assert (await EnsembleJudge([constant(None), constant(None)]).score(REQUEST)).rubric_scores == {}


async def test_the_first_member_that_can_propose_does():
    class Down(ScriptedJudge):
        async def propose(self, contrast):
            return Proposal(failure="down")

    down = Down(lambda *_: 1)
    able = ScriptedJudge(lambda *_: 1, rubrics=(CRITERION,))
    contrast = Contrast(QUESTION, GROUP.trajectories)
    assert (await EnsembleJudge([down, able]).propose(contrast)).rubrics == (CRITERION,)
    assert "down" in (await EnsembleJudge([down, down]).propose(contrast)).failure


async def test_a_combined_score_keeps_its_members_scores():
    judge = StepJudge(EnsembleJudge([constant(2), constant(1)]), RubricBuffer())
    (judged,) = await judge.judge_step([GROUP], step=1)
    (rubric_score,) = judged.rollouts[0].rubric_scores
    assert (rubric_score.scores, rubric_score.spread) == ((2, 1), 1)
    assert judged.judgements[0].score(Stage.ANSWER) == 0.75


def test_an_ensemble_of_one_is_refused():
    with pytest.raises(ConfigError, match="1 members; it needs at least 2"):
        EnsembleJudge([constant(1)])
