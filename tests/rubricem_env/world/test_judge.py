"""The almanac's judge: true by default, bent by its knobs, the same in every order."""

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.judge.base import Contrast, ScoringRequest
from rubricem_env.scaffold.reading import Reading, read_trajectory
from rubricem_env.testing.episodes import DEMO_QUERY
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.judge import AlmanacJudge, Evidence, JudgeKnobs, criteria_of
from rubricem_env.world.vocabulary import WorldError

QUESTIONS = load_questions(shipped_questions_path())
QUESTION = next(question for question in QUESTIONS if question.question == DEMO_QUERY.question)


def attempt(answer: str) -> Reading:
    segment = Segment(origin=Origin.POLICY, text=f"<answer>{answer}</answer>")
    return read_trajectory(Trajectory(question=DEMO_QUERY.question, segments=(segment,)))


GOOD = attempt("The width of Amber Badger is 130 m. The width of Tall Fox is 60 m.")
POOR = attempt("The width of Amber Badger is 270 m.")


def true_marks(reading: Reading) -> dict[str, int]:
    evidence = Evidence.of(reading)
    return {c.rubric.id: c.mark(evidence) for c in criteria_of(QUESTION) if c.rubric.stage is Stage.ANSWER}


async def given_marks(judge: AlmanacJudge, reading: Reading) -> dict[str, float]:
    rubrics = tuple(criterion.rubric for criterion in criteria_of(QUESTION))
    findings = await judge.score(ScoringRequest(QUESTION.question, reading, rubrics))
    return {rubric_id: opinion.mark for rubric_id, opinion in findings.opinions.items()}


async def test_with_all_knobs_at_rest_the_marks_are_the_true_ones():
    judge = AlmanacJudge(QUESTIONS)
    assert await given_marks(judge, GOOD) == true_marks(GOOD)
    assert await given_marks(judge, POOR) == true_marks(POOR)


async def test_it_proposes_what_separates_the_group_and_nothing_else():
    proposal = await AlmanacJudge(QUESTIONS).propose(Contrast(QUESTION.question, (GOOD, POOR), step=3))
    titles = {rubric.title for rubric in proposal.rubrics}
    assert titles == {"width of Amber Badger", "width of Tall Fox", "stale value"}
    assert {rubric.provenance.step for rubric in proposal.rubrics} == {3}


async def test_identical_attempts_give_nothing_to_propose():
    assert (await AlmanacJudge(QUESTIONS).propose(Contrast(QUESTION.question, (GOOD, GOOD)))).rubrics == ()


async def test_full_noise_moves_every_mark_by_one_and_always_the_same_way():
    judge = AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(noise=1.0))
    noisy, true = await given_marks(judge, GOOD), true_marks(GOOD)
    assert {abs(noisy[rubric_id] - true[rubric_id]) for rubric_id in true} == {1}
    assert await given_marks(AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(noise=1.0)), GOOD) == noisy


async def test_length_bias_favours_a_long_answer():
    judge = AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(length_bias=1.0), usual_length=20)
    assert sum((await given_marks(judge, GOOD)).values()) > sum(true_marks(GOOD).values())


async def test_a_failing_judge_says_so_and_gives_no_marks():
    judge = AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(failure_rate=1.0))
    findings = await judge.score(ScoringRequest(QUESTION.question, GOOD, ()))
    assert findings.failure
    assert not findings.opinions
    assert (await judge.propose(Contrast(QUESTION.question, (GOOD, POOR)))).failure


async def test_latency_is_slept_through():
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(latency=1.5), sleep=sleep).score(
        ScoringRequest(QUESTION.question, GOOD, ())
    )
    assert slept == [1.5]


async def test_a_rubric_that_is_no_true_criterion_is_left_unmarked():
    foreign = Rubric(stage=Stage.ANSWER, title="style", description="The answer is elegant.")
    findings = await AlmanacJudge(QUESTIONS).score(ScoringRequest(QUESTION.question, GOOD, (foreign,)))
    assert findings.opinions == {}


async def test_a_question_of_another_world_is_refused_with_the_way_out():
    with pytest.raises(WorldError, match="give it that world's questions"):
        await AlmanacJudge(QUESTIONS).score(ScoringRequest("Who?", GOOD, ()))
