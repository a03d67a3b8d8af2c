"""The held-out judge and its warning."""

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.base import ScoringResult
from rubricem_env.judge.group import Group
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.trust.audit import AuditSettings, HeldOutAudit
from rubricem_env.testing.judges import QUESTION, ScriptedJudge, attempt, careless
from tests.fakes import rubric
from tests.rubricem_env.judge.trusted_judges import CRITERION, GROUP, constant

ALL = AuditSettings(share=1.0)


async def test_the_held_out_judge_scores_the_sample_by_the_same_rubrics():
    judged = await StepJudge(constant(2), RubricBuffer()).judge_step([GROUP], step=1)
    audit = await HeldOutAudit(constant(0), settings=ALL).examine([GROUP], judged)
    # answers only: training 1.0, held out 0.0
    assert (audit.sampled, audit.unscored, audit.gap) == (2, 0, 1.0)
    assert (audit.judge, audit.held_out) == ({"answer": 1.0}, {"answer": 0.0})
    nothing = await HeldOutAudit(constant(0), settings=AuditSettings(share=0.0)).examine([GROUP], judged)
    assert (nothing.sampled, nothing.gap) == (0, None)


async def test_what_the_held_out_judge_cannot_score_is_counted():
    judged = await StepJudge(constant(2), RubricBuffer()).judge_step([GROUP], step=1)
    audit = await HeldOutAudit(constant(None), settings=ALL).examine([GROUP], judged)
    assert (audit.unscored, audit.judge, audit.held_out) == (2, {}, {})


async def test_a_rollout_whose_answer_alone_was_scored_is_not_compared_with_the_held_out_judge():
    class HalfDown(ScriptedJudge):
        """Marks the answer alone of the first attempt, as the reduced call does, and all of the second."""

        async def score(self, request):
            found = await super().score(request)
            if not request.parsed.happened(Stage.REVIEW):
                return found
            answers = {r.id: found.rubric_scores[r.id] for r in request.rubrics if r.stage == Stage.ANSWER}
            return ScoringResult(answers, failure="down", is_answer_only=True)

    planned = rubric("plans", Stage.PLAN, persistent=True)
    group = Group.of(Query(question=QUESTION, rubrics=(CRITERION, planned)), [attempt(), careless()])

    def score(_, criterion):
        return 2 if criterion == CRITERION else 0

    judged = await StepJudge(HalfDown(score), RubricBuffer()).judge_step([group], step=1)
    assert [rollout.is_answer_only for rollout in judged[0].rollouts] == [True, False]
    audit = await HeldOutAudit(ScriptedJudge(score), settings=ALL).examine([group], judged)
    # both score alike: only on the first plan would they part, by the 1.0 that it has borrowed from the answer
    assert (audit.sampled, audit.unscored, audit.gap) == (1, 0, 0.0)


async def test_fixed_rubrics_take_the_place_of_those_that_the_training_judge_used():
    judged = await StepJudge(constant(2), RubricBuffer()).judge_step([GROUP], step=1)
    fixed = rubric("names the month")
    judge = ScriptedJudge(lambda _, criterion: 1 if criterion == fixed else 2)
    audit = await HeldOutAudit(judge, settings=ALL, rubrics={GROUP.key: [fixed]}).examine([GROUP], judged)
    # training 2/2, held out 1/2 by the fixed rubric; no rubric has been scored by both
    assert (audit.judge, audit.held_out, audit.kappa) == ({"answer": 1.0}, {"answer": 0.5}, None)


async def test_the_audit_warns_when_the_gap_widens_and_survives_a_restart():
    settings = AuditSettings(share=1.0, warm_up=2, window=2, widening=0.1)
    judged = await StepJudge(constant(2), RubricBuffer()).judge_step([GROUP], step=1)
    agrees, again = HeldOutAudit(constant(2), settings=settings), HeldOutAudit(constant(1), settings=settings)
    assert [(await agrees.examine([GROUP], judged)).warning for _ in range(3)] == [""] * 3
    again.load_state_dict(agrees.state_dict())
    # gaps 0, 0, 0, 0.5: baseline 0, now (0 + 0.5) / 2
    assert "now scores +0.25 above the held-out judge" in (await again.examine([GROUP], judged)).warning
    with pytest.raises(FileFormatError):
        again.load_state_dict({"gaps": [float("nan")]})
