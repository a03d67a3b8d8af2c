"""A judge that is dead is an outage, also where a question has no rubrics yet: a failure is never a score."""

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import JudgeError, ModelError
from rubricem_env.domain.judgement import Unscored
from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.base import Proposal, ScoringResult
from rubricem_env.judge.group import Group
from rubricem_env.judge.group_scorer import GroupScorer
from rubricem_env.judge.masking import group_scores
from rubricem_env.judge.model.ask_settings import AskSettings
from rubricem_env.judge.model.llm_judge import LLMJudge
from rubricem_env.judge.pipeline import StepJudge
from rubricem_env.judge.rubrics.rubric_buffer import RubricBuffer
from rubricem_env.judge.settings import JudgeSettings
from rubricem_env.llm.chat import ChatReply
from rubricem_env.llm.limits.retry import RetryPolicy
from rubricem_env.testing.judges import QUESTION, ScriptedJudge, attempt, careless
from tests.fakes import ScriptedModel, rubric

ONCE = RetryPolicy(attempts=1)
DEAD = {
    "503": ModelError("503", is_retryable=True),
    "401": ModelError("401: the key is refused"),
    "prose": "Service overloaded, try later.",
    "no JSON object": "[]",
    "NaN": '{"stage_1": NaN}',
    "empty": ChatReply(text="", model="m"),
    "blocked": ChatReply(text="I cannot", model="m", finish="blocked"),
    "truncated": ChatReply(text='{"stage_1": {', model="m", finish="length"),
}


def dead_judge(reply) -> StepJudge:
    model = ScriptedModel(lambda _: reply)
    return StepJudge(LLMJudge(model, settings=AskSettings(retry=ONCE, fallback_retry=ONCE)), RubricBuffer())


def group(number=0, rubrics=()) -> Group:
    question = f"{QUESTION} {number}"
    return Group.of(Query(question=question, rubrics=rubrics), [attempt(question=question), careless()])


@pytest.mark.parametrize("reply", DEAD.values(), ids=DEAD)
async def test_a_judge_that_is_dead_before_the_first_rubric_stops_the_step(reply):
    with pytest.raises(JudgeError, match=r"\d of the step's 8 rollouts were lost.*First failure: .*no rubric"):
        await dead_judge(reply).judge_step([group(number) for number in range(4)], step=1)


async def test_an_environment_gets_no_score_from_a_dead_judge():
    scores = await GroupScorer(dead_judge(DEAD["503"])).score([attempt(), careless()])
    assert {
        outcome.reason
        for outcome in (scores[0].outcome("plan"), scores[0].outcome("answer"), scores[1].outcome("answer"))
    } == {"judge_failed"}
    assert scores[1].outcome("review").missing


def score_citations(request, _):
    return 2 if "S_2" in request.parsed.answer else 0


class CannotPropose(ScriptedJudge):
    async def propose(self, contrast):
        return Proposal(failure="down")


@pytest.mark.parametrize("fallback", ["mean", "broadcast"])
async def test_where_proposing_alone_fails_there_are_no_new_rubrics_and_no_score_stands_in(fallback):
    judge = StepJudge(CannotPropose(score_citations), RubricBuffer())
    silent = StepJudge(ScriptedJudge(score_citations), RubricBuffer())
    given = group(rubrics=(rubric("given", persistent=True),))
    (judged,), (quiet,) = await judge.judge_step([given], step=1), await silent.judge_step([given], step=1)

    # the careful answer has 2/2 and the careless one 0/2; without rubrics of their own, plan and research have no score
    assert [judged.judgements[0].score(stage) for stage in Stage] == [None, None, None, 1.0]
    assert judged.judgements[0].outcome("plan") == Unscored(
        reason="no_rubric", detail="no rubric could be proposed: down"
    )
    assert (judged.failures, judged.proposal_failure) == (0, "down")
    # the same as of a judge that has nothing to add
    found, expected = group_scores(judged.judgements, fallback), group_scores(quiet.judgements, fallback)
    assert found.scores.tolist() == expected.scores.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0]]
    assert found.scored.all()
    assert found.valid.all()


async def test_where_proposing_and_scoring_fail_the_attempts_are_lost():
    class Dead(CannotPropose):
        async def score(self, request):
            return ScoringResult(failure="down")

    judge = StepJudge(Dead(score_citations), RubricBuffer(), settings=JudgeSettings(failure_limit=1.0))
    (judged,) = await judge.judge_step([group(rubrics=(rubric("given", persistent=True),))], step=1)
    assert (judged.failures, judged.judgements[0].outcome("answer").reason) == (2, "judge_failed")


async def test_a_judge_with_nothing_to_add_is_not_a_failure():
    (judged,) = await StepJudge(ScriptedJudge(lambda *_: 1), RubricBuffer()).judge_step([group()], step=1)
    assert (judged.failures, judged.judgements[0].outcome("plan").reason) == (0, "no_rubric")
