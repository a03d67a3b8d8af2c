"""Several judges as one."""

import asyncio

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.judgement import Judgement, Unscored
from rubricem_env.domain.reflection import ReflectionScore
from rubricem_env.judge.base import Contrast, Proposal, ScoringRequest
from rubricem_env.judge.ensemble import EnsembleJudge
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.reflections import CandidateScore, ReflectionTask
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import QUESTION, ScriptedJudge, attempt
from tests.fakes import rubric
from tests.rubricem_env.judge.trusted_judges import CRITERION, GROUP, constant

REQUEST = ScoringRequest(QUESTION, parse_trajectory(attempt()), (CRITERION,))


class CannotPropose(ScriptedJudge):
    def __init__(self, name):
        super().__init__(lambda *_: 1, name=name)

    async def propose(self, contrast):
        return Proposal(failure="down")


class Reflects(ScriptedJudge):
    """Scores reflections by a list; None is a failure."""

    def __init__(self, scores, *, name="scripted", refusal=""):
        super().__init__(lambda *_: 1, name=name)
        self._scores, self._refusal = scores, refusal

    async def judge_reflections(self, task):
        failed = CandidateScore(Unscored(reason="judge_failed", detail=f"{self.name}: down"))
        return tuple(
            CandidateScore(
                ReflectionScore(diagnosis=score[0], specificity=score[1], scope=score[2]),
                f"diagnosis {score[0]}",
                self._refusal,
            )
            if score
            else failed
            for score in self._scores
        )


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


async def test_a_member_that_cannot_propose_is_named_beside_the_rubrics_of_the_next():
    down, able = CannotPropose("away"), ScriptedJudge(lambda *_: 1, rubrics=(CRITERION,))
    proposal = await EnsembleJudge([down, able]).propose(Contrast(QUESTION, GROUP.trajectories))
    assert (proposal.failure, proposal.refused) == ("", ("member_failed: away: down",))


async def test_members_propose_together_by_choice_and_a_criterion_is_kept_once():
    twin = CRITERION.model_copy(update={"weight": 1.0})
    mirror = CRITERION.model_copy(update={"polarity": "negative"})
    other = rubric("says what stays open")
    members = [
        ScriptedJudge(lambda *_: 1, rubrics=(CRITERION,)),
        CannotPropose("away"),
        ScriptedJudge(lambda *_: 1, rubrics=(twin, mirror, other)),
    ]
    contrast = Contrast(QUESTION, GROUP.trajectories)
    together = await EnsembleJudge(members, proposers="all").propose(contrast)
    # The wording is the same, so the second and its mirror are left out; the first member's weight stays.
    assert together.rubrics == (CRITERION, other)
    assert (together.failure, together.refused) == ("", ("member_failed: away: down",))
    assert (await EnsembleJudge(members).propose(contrast)).rubrics == (CRITERION,)


async def test_members_propose_at_once():
    met = asyncio.Barrier(2)

    class Waits(ScriptedJudge):
        async def propose(self, contrast):
            async with asyncio.timeout(5):
                await met.wait()
            return await super().propose(contrast)

    ensemble = EnsembleJudge([Waits(lambda *_: 1), Waits(lambda *_: 1)], proposers="all")
    assert await ensemble.propose(Contrast(QUESTION, GROUP.trajectories)) == Proposal()


async def test_all_members_that_fail_to_propose_together_are_named():
    ensemble = EnsembleJudge([CannotPropose("one"), CannotPropose("two")], proposers="all")
    assert (await ensemble.propose(Contrast(QUESTION, GROUP.trajectories))).failure == "one: down; two: down"


TASK = ReflectionTask(QUESTION, GROUP.trajectories[0], Judgement.of({}), (), ("first", "second"))


@pytest.mark.parametrize(
    ("combine", "combined"),
    [
        # diagnosis 0, 0.3, 0.9: mean 0.4, trimmed 0.3
        ("mean", 0.4),
        ("majority", 0.4),
        ("trimmed", 0.3),
    ],
)
async def test_members_judge_reflections_and_each_dimension_is_combined(combine, combined):
    members = [Reflects([(0.0, 0.5, 1.0)] * 2), Reflects([(0.3, 0.5, 1.0)] * 2), Reflects([(0.9, 0.5, 1.0)] * 2)]
    scores = await EnsembleJudge(members, combine=combine).judge_reflections(TASK)
    assert [judged.outcome.diagnosis for judged in scores] == pytest.approx([combined] * 2)
    assert [(judged.outcome.specificity, judged.outcome.scope) for judged in scores] == [(0.5, 1.0)] * 2
    assert scores[0].justification == "diagnosis 0.3"  # the nearest member's


async def test_a_member_that_fails_on_a_reflection_is_left_out_and_a_candidate_without_a_score_is_unscored():
    members = [Reflects([(0.2, 0.2, 0.2), None], name="one"), Reflects([None, None], name="two"), constant(1)]
    first, second = await EnsembleJudge(members).judge_reflections(TASK)
    assert first.outcome == ReflectionScore(diagnosis=0.2, specificity=0.2, scope=0.2)
    assert second.outcome == Unscored(reason="judge_failed", detail="one: down; two: down")
    neither = await EnsembleJudge([constant(1), constant(2)]).judge_reflections(TASK)
    assert {judged.outcome.detail for judged in neither} == {"no member of the ensemble judges reflections"}


async def test_what_one_members_second_reader_keeps_out_stays_out():
    members = [Reflects([(0.2, 0.2, 0.2)] * 2), Reflects([(0.2, 0.2, 0.2)] * 2, refusal="it is promotion")]
    assert (await EnsembleJudge(members).judge_reflections(TASK))[0].refusal == "it is promotion"


async def test_a_combined_score_keeps_its_members_scores():
    judge = StepJudge(EnsembleJudge([constant(2), constant(1)]), RubricBuffer())
    (judged,) = await judge.judge_step([GROUP], step=1)
    (rubric_score,) = judged.rollouts[0].rubric_scores
    assert (rubric_score.scores, rubric_score.spread) == ((2, 1), 1)
    assert judged.judgements[0].score(Stage.ANSWER) == 0.75


def test_an_ensemble_of_one_is_refused():
    with pytest.raises(ConfigError, match="1 members; it needs at least 2"):
        EnsembleJudge([constant(1)])
