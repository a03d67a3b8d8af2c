"""A step's groups judged together: scores, order, failures, resumption."""

import asyncio
import json
import random

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import FileFormatError, JudgeError, UsageError
from rubricem_env.domain.judgement import RubricScore
from rubricem_env.domain.trajectory import Ending, Query, Trajectory
from rubricem_env.judge.base import ScoringResult
from rubricem_env.judge.group import Group
from rubricem_env.judge.group_scorer import GroupScorer
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import QUESTION, ScriptedJudge, attempt, careless
from tests.fakes import rubric

LONG = rubric("speaks of the season", weight=3)
PLANNED = rubric("plans for the season", Stage.PLAN, weight=2)
GIVEN = rubric("says which is wider", persistent=True)


def by_season(request, criterion):
    """2 where the stage speaks of the season, else 0: a judge that can be computed by hand."""
    return 2 if "season" in request.parsed.stage_text(criterion.stage) else 0


def group_of(question="Q?", size=2, rubrics=()):
    trajectories = [attempt(question=question), careless().model_copy(update={"question": question})]
    extra = [attempt(question=question, answer=f"<answer>{n}</answer>") for n in range(size - 2)]
    return Group.of(Query(question=question, rubrics=rubrics), [*trajectories, *extra][:size])


def step_judge(judge=None, **settings):
    judge = judge or ScriptedJudge(by_season, rubrics=(LONG, PLANNED))
    return StepJudge(judge, RubricBuffer(), settings=JudgeSettings(**settings))


async def test_a_golden_group_is_scored_by_hand():
    judge = step_judge()
    (judged,) = await judge.judge_step([group_of(rubrics=(GIVEN,))], step=1)
    good, poor = judged.judgements
    # Good: plan 2/2 = 1; answer (3 x 1 + 1 x 1) / 4 = 1. Poor: plan 0, answer 0, review missing.
    assert [good.score(stage) for stage in Stage] == [1.0, None, None, 1.0]
    assert [poor.score(stage) for stage in Stage] == [0.0, None, 0.0, 0.0]
    assert good.outcome("review").reason == "no_rubric"
    kept = judge.buffer.rubrics(judged.query_key)
    assert [entry.rubric.title for entry in kept.active] == [LONG.title, PLANNED.title]
    assert kept.persistent == (GIVEN,)


async def test_identical_rollouts_are_not_contrasted_and_their_rubrics_retire():
    judge = step_judge()
    await judge.judge_step([group_of()], step=1)
    same = Group.of(Query(question="Q?"), [attempt(question="Q?")] * 3)
    (judged,) = await judge.judge_step([same], step=2)
    assert len(judge.judge.contrasts) == 1
    assert {j.score(Stage.ANSWER) for j in judged.judgements} == {1.0}
    assert judge.buffer.rubrics(judged.query_key).active == ()


async def test_one_rollout_is_scored_with_what_there_is_and_retires_nothing():
    judge = step_judge()
    await judge.judge_step([group_of()], step=1)
    (judged,) = await judge.judge_step([group_of(size=1)], step=2)
    assert judged.judgements[0].score(Stage.ANSWER) == 1.0
    assert len(judge.buffer.rubrics(judged.query_key).active) == 2


async def test_results_do_not_depend_on_who_finishes_first():
    groups = [group_of(f"Q{number}?", 4) for number in range(6)]
    outcomes = []
    for seed in (1, 2):
        rng = random.Random(seed)
        judge = ScriptedJudge(by_season, rubrics=(LONG, PLANNED), delay=lambda *_, rng=rng: rng.random() / 500)
        judging = step_judge(judge, dropout=0.5, seed=9)
        outcomes.append((await judging.judge_step(groups, step=3), json.dumps(judging.buffer.state_dict())))
    assert outcomes[0] == outcomes[1]


async def test_the_same_question_twice_is_contrasted_and_scored_once():
    judge = step_judge()
    first, second = await judge.judge_step([group_of(size=2), group_of(size=3)], step=1)
    assert (len(judge.judge.contrasts), len(judge.judge.contrasts[0].trajectories)) == (1, 5)
    assert (len(first.rollouts), len(second.rollouts), len(judge.judge.requests)) == (2, 3, 5)


async def test_a_failure_is_unscored_and_never_zero():
    judge = ScriptedJudge(lambda e, r: None if "S_99" in e.parsed.policy_text else 2, rubrics=(LONG,))
    (judged,) = await step_judge(judge, failure_limit=0.5).judge_step([group_of()], step=1)
    assert judged.judgements[1].outcome("answer").reason == "judge_failed"
    assert (judged.rollouts[0].is_valid, judged.rollouts[1].is_valid) == (True, False)


async def test_an_attempt_that_the_infrastructure_broke_off_teaches_nothing_about_rubrics():
    shared = rubric("speaks at all", weight=3)

    def score(request, criterion):
        broken = request.parsed.trajectory.ending is Ending.ABANDONED
        return (0 if broken else 2) if criterion == shared else by_season(request, criterion)

    judge = step_judge(ScriptedJudge(score, rubrics=(shared, LONG)), caps={"answer": 1})
    whole = group_of(size=4)
    broken = attempt(question="Q?", answer="<answer>so far").model_copy(update={"ending": Ending.ABANDONED})
    group = Group(whole.query, (*whole.trajectories, parse_trajectory(broken)))
    (judged,) = await judge.judge_step([group], step=1)
    kept = judge.buffer.rubrics(judged.query_key)
    # over the four intact attempts `shared` is scored 2 throughout; with the fifth its variance would be 0.64
    assert [(entry.last.rubric.title, entry.reason) for entry in kept.archive] == [(shared.title, "separates_nothing")]
    assert [entry.rubric.title for entry in kept.active] == [LONG.title]
    assert [contrast.trajectories for contrast in judge.judge.contrasts] == [whole.trajectories]
    # it has a judgement like the others: whether it may train is for the caller to say
    assert [rollout.judgement.score(Stage.ANSWER) for rollout in judged.rollouts] == [1.0, 0.5, 0.5, 0.5, 0.0]


async def test_a_group_that_was_broken_off_whole_leaves_the_buffer_as_it_was():
    judge = step_judge()
    await judge.judge_step([group_of()], step=1)
    before = judge.buffer.state_dict()
    broken = [attempt(question="Q?").model_copy(update={"ending": Ending.ABANDONED})] * 2
    await judge.judge_step([Group.of(Query(question="Q?"), broken)], step=2)
    assert judge.buffer.state_dict() == before


async def test_more_failures_than_the_limit_stop_the_step_and_say_so():
    judge = ScriptedJudge(lambda e, r: None, rubrics=(LONG,))
    with pytest.raises(JudgeError, match=r"2 of the step's 8 rollouts were lost; more than 20%"):
        await step_judge(judge).judge_step([group_of(f"Q{n}?") for n in range(4)], step=1)


class AnswerOnly(ScriptedJudge):
    async def score(self, request):
        answers = [r for r in request.rubrics if r.stage == Stage.ANSWER]
        rubric_scores = {r.id: RubricScore.whole(r.id, 1, "") for r in answers}
        return ScoringResult(rubric_scores, failure="down", is_answer_only=True)


async def test_the_fallback_scores_the_answer_alone_and_retires_nothing():
    judge = step_judge(AnswerOnly(by_season, rubrics=(LONG, PLANNED)))
    (judged,) = await judge.judge_step([group_of()], step=1)
    # one answer rubric scored 1: 0.5; the second attempt has no review
    assert [judged.judgements[0].score(stage) for stage in Stage] == [None, None, None, 0.5]
    assert [judged.judgements[1].score(stage) for stage in Stage] == [None, None, 0.0, 0.5]
    assert not judged.failures
    assert judge.buffer.rubrics(judged.query_key).archive == ()


async def test_scoring_of_a_group_begins_before_another_groups_proposal_is_in():
    slow_proposal = asyncio.Event()

    class Judge(ScriptedJudge):
        async def propose(self, contrast):
            if contrast.question == "slow?":
                await slow_proposal.wait()
            return await super().propose(contrast)

        async def score(self, request):
            slow_proposal.set()
            return await super().score(request)

    judge = step_judge(Judge(by_season, rubrics=(LONG,)))
    async with asyncio.timeout(5):
        assert len(await judge.judge_step([group_of("slow?"), group_of("fast?")], step=1)) == 2


def saving_judge(save):
    """A step judge whose state is given to `save` whenever the n-th group waits for the n groups before it."""

    class Judge(ScriptedJudge):
        async def score(self, request):
            number = int(request.question.strip("Q?"))
            while len(judging.state_dict()["ledger"]["finished"]) < number:
                await asyncio.sleep(0)
            save(judging.state_dict())
            return await super().score(request)

    judging = StepJudge(Judge(by_season, rubrics=(LONG, PLANNED)), RubricBuffer())
    return judging


async def test_a_step_killed_in_the_middle_resumes_where_it_was():
    groups = [group_of(f"Q{number}?") for number in range(5)]
    whole = step_judge()
    expected = await whole.judge_step(groups, step=7)

    saved = {}
    killed = saving_judge(lambda state: saved.setdefault(len(state["ledger"]["finished"]), json.dumps(state)))
    await killed.judge_step(groups, step=7)

    # What was saved when three groups were finished is all that is left of the killed run.
    resumed = step_judge()
    resumed.load_state_dict(json.loads(saved[3]))
    assert await resumed.judge_step(groups, step=7) == expected
    assert len(resumed.judge.contrasts) == 2
    assert resumed.buffer.state_dict() == whole.buffer.state_dict()


@pytest.mark.parametrize(
    "ledger", [None, 3, [], {}, {"version": 2, "step": 1, "finished": []}, {"version": 1, "step": 1, "finished": [{}]}]
)
def test_a_damaged_ledger_is_refused_and_changes_nothing(ledger):
    judging = step_judge()
    before = judging.state_dict()
    with pytest.raises(FileFormatError, match="the judge's ledger is malformed, or of another version"):
        judging.load_state_dict({**before, "ledger": ledger})
    assert judging.state_dict() == before


async def test_after_an_outage_only_what_failed_is_judged_again():
    groups = [group_of(f"Q{number}?") for number in range(4)]
    judging = step_judge(ScriptedJudge(lambda e, r: None if e.question == "Q3?" else 2, rubrics=(LONG,)))
    with pytest.raises(JudgeError):
        await judging.judge_step(groups, step=1)
    judging.judge = ScriptedJudge(by_season, rubrics=(LONG,))
    await judging.judge_step(groups, step=1)
    assert {e.question for e in judging.judge.requests} == {"Q3?"}


async def test_other_trajectories_of_the_same_step_are_judged_anew():
    judging = step_judge()
    await judging.judge_step([group_of(size=2)], step=1)
    (judged,) = await judging.judge_step([group_of(size=4)], step=1)
    assert len(judged.rollouts) == 4


async def test_an_environment_is_given_judgements_of_one_question():
    query = Query(question=QUESTION, rubrics=(GIVEN,))
    scorer = GroupScorer(step_judge(), {query.key: query})
    (alone,) = await scorer.score([attempt()])
    # a single attempt: persistent rubrics alone, and the answer speaks of the season
    assert [alone.score(stage) for stage in Stage] == [None, None, None, 1.0]
    assert await scorer.score([]) == []
    with pytest.raises(UsageError, match="2 questions"):
        await scorer.score([attempt(), attempt(question="Other?")])


async def test_a_trajectory_without_any_stage_is_all_missing_and_asks_nothing():
    judging = step_judge()
    nothing = Trajectory(question="Q?", segments=())
    (judged,) = await judging.judge_step([Group.of(Query(question="Q?", rubrics=(GIVEN,)), [nothing, nothing])], step=1)
    assert [judged.judgements[0].score(stage) for stage in Stage] == [0.0] * 4
    assert judging.judge.requests == []
