"""Judges judged: ensembles, the held-out judge and its alarm, calibration, the length probe."""

import pytest

from rubricem_env.concurrency import open_generator
from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.agreement import Agreement, measure_agreement
from rubricem_env.judge.audit import AuditSettings, HeldOutAudit
from rubricem_env.judge.base import Contrast, Proposal, ScoringRequest, ScoringResult
from rubricem_env.judge.calibration import LabelledExample, calibrate
from rubricem_env.judge.ensemble import EnsembleJudge
from rubricem_env.judge.group import Group
from rubricem_env.judge.length_bias import probe_length
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubric_buffer import RubricBuffer
from rubricem_env.judge.rubric_dropout import drop_rubrics
from rubricem_env.judge.rules_judge import RulesJudge
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import QUESTION, ScriptedJudge, attempt, careless
from tests.fakes import rubric

CRITERION = rubric("speaks of the season", persistent=True)
EXAMINATION = ScoringRequest(QUESTION, parse_trajectory(attempt()), (CRITERION,))
GROUP = Group.of(Query(question=QUESTION, rubrics=(CRITERION,)), [attempt(), careless()])
ALL = AuditSettings(share=1.0)


def constant(mark):
    return ScriptedJudge(lambda *_: mark, name=f"always {mark}")


@pytest.mark.parametrize(
    ("combine", "marks", "combined"),
    [
        ("mean", (0, 1, 2, 2), 1.25),
        ("majority", (0, 2, 2), 2.0),
        ("majority", (0, 2), 0.0),
        ("trimmed", (0, 1, 2, 2), 1.5),
        ("trimmed", (0, 1), 0.5),
    ],
)
async def test_members_marks_are_combined_by_hand(combine, marks, combined):
    found = await EnsembleJudge([constant(mark) for mark in marks], combine=combine).score(EXAMINATION)
    rubric_score = found.rubric_scores[CRITERION.id]
    assert (rubric_score.score, rubric_score.scores, rubric_score.spread) == (combined, marks, max(marks) - min(marks))
    assert rubric_score.rounded == round(combined + 0.01)  # halves round up
    assert rubric_score.justification.startswith("mean 1.25 of the scores 0, 1, 2, 2: ") == (combined == 1.25)


async def test_a_member_that_fails_is_left_out_and_said():
    found = await EnsembleJudge([constant(None), constant(1)]).score(EXAMINATION)
    assert (found.rubric_scores[CRITERION.id].scores, bool(found.failure)) == ((1,), True)
    assert (await EnsembleJudge([constant(None), constant(None)]).score(EXAMINATION)).rubric_scores == {}


async def test_the_first_member_that_can_propose_does():
    class Down(ScriptedJudge):
        async def propose(self, contrast):
            return Proposal(failure="down")

    down = Down(lambda *_: 1)
    able = ScriptedJudge(lambda *_: 1, rubrics=(CRITERION,))
    contrast = Contrast(QUESTION, GROUP.trajectories)
    assert (await EnsembleJudge([down, able]).propose(contrast)).rubrics == (CRITERION,)
    assert "down" in (await EnsembleJudge([down, down]).propose(contrast)).failure


async def test_a_combined_score_keeps_its_members_marks():
    judge = StepJudge(EnsembleJudge([constant(2), constant(1)]), RubricBuffer())
    (judged,) = await judge.judge_step([GROUP], step=1)
    (rubric_score,) = judged.rollouts[0].rubric_scores
    assert (rubric_score.scores, rubric_score.spread) == ((2, 1), 1)
    assert judged.judgements[0].score(Stage.ANSWER) == 0.75


def test_an_ensemble_of_one_is_refused():
    with pytest.raises(ConfigError, match="1 members; it needs at least 2"):
        EnsembleJudge([constant(1)])


def test_agreement_by_hand():
    pairs = [(2, 2), (1, 0), (0, 0), (2, 0)]
    # exact 2/4; within one 3/4; squared distances 0+1+0+4 = 5, observed 5/4.
    # by chance: firsts {2:2, 1:1, 0:1}, seconds {2:1, 0:3}; sum n_a n_b d^2 =
    # 2x1x0 + 2x3x4 + 1x1x1 + 1x3x1 + 1x1x4 + 1x3x0 = 32, /16 = 2. kappa = 1 - 1.25/2 = 0.375. bias 3/4.
    assert measure_agreement(pairs) == Agreement(4, 0.5, 0.75, 0.375, 0.75)
    assert measure_agreement([]).exact is None
    assert measure_agreement([(1, 0), (1, 2)]).kappa is None


async def test_the_held_out_judge_marks_the_sample_by_the_same_rubrics():
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


async def test_a_rollout_whose_answer_alone_was_marked_is_not_held_against_the_held_out_judge():
    class HalfDown(ScriptedJudge):
        """Marks the answer alone of the first attempt, as the reduced call does, and all of the second."""

        async def score(self, request):
            found = await super().score(request)
            if not request.parsed.happened(Stage.REVIEW):
                return found
            answers = {r.id: found.rubric_scores[r.id] for r in request.rubrics if r.stage is Stage.ANSWER}
            return ScoringResult(answers, failure="down", is_answer_only=True)

    planned = rubric("plans", Stage.PLAN, persistent=True)
    group = Group.of(Query(question=QUESTION, rubrics=(CRITERION, planned)), [attempt(), careless()])

    def mark(_, criterion):
        return 2 if criterion == CRITERION else 0

    judged = await StepJudge(HalfDown(mark), RubricBuffer()).judge_step([group], step=1)
    assert [rollout.is_answer_only for rollout in judged[0].rollouts] == [True, False]
    audit = await HeldOutAudit(ScriptedJudge(mark), settings=ALL).examine([group], judged)
    # both mark alike: only on the first plan would they part, by the 1.0 that it has borrowed from the answer
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


async def test_calibration_compares_marks_with_labels():
    stage = rubric("p", Stage.REVIEW)
    examples = [
        LabelledExample(trajectory=attempt(), rubric=CRITERION, label=2),
        LabelledExample(trajectory=careless(), rubric=CRITERION, label=0),
        LabelledExample(trajectory=careless(), rubric=stage, label=0),
    ]
    found = await calibrate(constant(2), examples)
    # marks 2, 2, and 0 for the review that never happened; labels 2, 0, 0
    assert (found.overall.pairs, found.overall.exact) == (3, pytest.approx(2 / 3))
    assert [rubric_score.rounded for rubric_score in found.rubric_scores] == [2, 2, 0]
    assert (await calibrate(constant(None), examples)).rubric_scores.count(None) == 2


async def test_the_probe_finds_a_judge_that_likes_length_and_clears_the_rules():
    class LovesLength(ScriptedJudge):
        async def score(self, request: ScoringRequest) -> ScoringResult:
            long = len(request.parsed.answer or "") > 600
            self._score_rubric = lambda *_: 2 if long else 1
            return await super().score(request)

    trajectories = [attempt(), careless(), attempt(answer="<answer>broken")]
    assert await probe_length(LovesLength(lambda *_: 1), trajectories, rubrics=[CRITERION]) == (0.5, 0.5, None)
    assert await probe_length(RulesJudge(), trajectories, rubrics=[CRITERION]) == (0.0, 0.0, None)


def test_dropout_keeps_persistent_rubrics_and_one_of_each_stage():
    rubrics = [CRITERION, *(rubric(str(n), Stage.PLAN) for n in range(6))]
    kept = drop_rubrics(rubrics, 1.0, rng=open_generator(0, "x"))
    assert CRITERION in kept
    assert len(kept) == 2
    assert (
        drop_rubrics(rubrics[::-1], 0.5, rng=open_generator(3, "x"))
        == drop_rubrics(rubrics, 0.5, rng=open_generator(3, "x"))[::-1]
    )
    assert drop_rubrics(rubrics, 0.0, rng=open_generator(0, "x")) == tuple(rubrics)
