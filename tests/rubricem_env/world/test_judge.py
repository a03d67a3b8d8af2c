"""The almanac judge and the true quality of a stage."""

import asyncio

import pytest

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Rubric
from rubricem_env.domain.trajectory import Origin, Segment, Trajectory
from rubricem_env.judge.base import Contrast, ScoringRequest
from rubricem_env.scaffold.parsed import ParsedTrajectory, parse_trajectory
from rubricem_env.testing.episodes import DEMO_QUERY, run_scripted_episode
from rubricem_env.world.almanac import load_questions, shipped_questions_path
from rubricem_env.world.judge import AlmanacJudge, Evidence, JudgeKnobs, criteria_of, true_quality
from rubricem_env.world.offline import shipped_toolbox

QUESTIONS = load_questions(shipped_questions_path())
QUESTION = next(question for question in QUESTIONS if question.question == DEMO_QUERY.question)
"""Compares the widths of Amber Badger (130 m; traps 270 m, 145 m) and Tall Fox (60 m)."""


def attempt(answer: str) -> ParsedTrajectory:
    segment = Segment(origin=Origin.POLICY, text=f"<answer>{answer}</answer>")
    return parse_trajectory(Trajectory(question=DEMO_QUERY.question, segments=(segment,)))


GOOD = attempt("The width of Amber Badger is 130 m. The width of Tall Fox is 60 m.")
POOR = attempt("The width of Amber Badger is 270 m.")


def true_scores(parsed: ParsedTrajectory) -> dict[str, int]:
    evidence = Evidence.of(parsed)
    return {
        rubric.id: true_score(evidence)
        for rubric, true_score in criteria_of(QUESTION).items()
        if rubric.stage == Stage.ANSWER
    }


async def given_scores(judge: AlmanacJudge, parsed: ParsedTrajectory) -> dict[str, float]:
    rubrics = tuple(criteria_of(QUESTION))
    scored = await judge.score(ScoringRequest(QUESTION.question, parsed, rubrics))
    return {rubric_id: rubric_score.score for rubric_id, rubric_score in scored.rubric_scores.items()}


async def test_with_all_knobs_at_rest_the_scores_are_the_true_ones():
    judge = AlmanacJudge(QUESTIONS)
    assert await given_scores(judge, GOOD) == true_scores(GOOD)
    assert await given_scores(judge, POOR) == true_scores(POOR)


async def test_it_proposes_what_separates_the_group_and_nothing_else():
    proposal = await AlmanacJudge(QUESTIONS).propose(Contrast(QUESTION.question, (GOOD, POOR), step=3))
    titles = {rubric.title for rubric in proposal.rubrics}
    assert titles == {"width of Amber Badger", "width of Tall Fox", "stale value"}
    assert {rubric.provenance.step for rubric in proposal.rubrics} == {3}


async def test_identical_attempts_give_nothing_to_propose():
    assert (await AlmanacJudge(QUESTIONS).propose(Contrast(QUESTION.question, (GOOD, GOOD)))).rubrics == ()


async def test_full_noise_moves_every_score_by_one_and_always_the_same_way():
    judge = AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(noise=1.0))
    noisy, true = await given_scores(judge, GOOD), true_scores(GOOD)
    assert {abs(noisy[rubric_id] - true[rubric_id]) for rubric_id in true} == {1}
    assert await given_scores(AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(noise=1.0)), GOOD) == noisy


async def test_length_bias_favours_a_long_answer():
    judge = AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(length_bias=1.0), usual_length=20)
    assert sum((await given_scores(judge, GOOD)).values()) > sum(true_scores(GOOD).values())


async def test_a_failing_judge_says_so_and_gives_no_scores():
    judge = AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(failure_rate=1.0))
    scored = await judge.score(ScoringRequest(QUESTION.question, GOOD, ()))
    assert scored.failure
    assert not scored.rubric_scores
    assert (await judge.propose(Contrast(QUESTION.question, (GOOD, POOR)))).failure


async def test_latency_is_slept_through():
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await AlmanacJudge(QUESTIONS, knobs=JudgeKnobs(latency=1.5), sleep=sleep).score(
        ScoringRequest(QUESTION.question, GOOD, ())
    )
    assert slept == [1.5]


async def test_a_rubric_that_is_no_true_criterion_is_left_unscored():
    foreign = Rubric(stage=Stage.ANSWER, title="style", description="The answer is elegant.")
    scored = await AlmanacJudge(QUESTIONS).score(ScoringRequest(QUESTION.question, GOOD, (foreign,)))
    assert scored.rubric_scores == {}


async def test_a_question_of_another_world_is_refused_with_the_way_out():
    with pytest.raises(UsageError, match="give it that world's questions"):
        await AlmanacJudge(QUESTIONS).score(ScoringRequest("Who?", GOOD, ()))


PAGE = (
    '<tool_output>\n<snippet id="S_1">Tall Fox sheet | https://almanac.example/d335\n'
    "The width is 60 m.</snippet>\n</tool_output>"
)


def researched(policy: str, page: str = PAGE) -> ParsedTrajectory:
    call = '<call_tool name="google_search">Tall Fox width</call_tool>'
    segments = (
        Segment(origin=Origin.POLICY, text=call),
        Segment(origin=Origin.TOOL, text=page),
        Segment(origin=Origin.POLICY, text=policy),
    )
    return parse_trajectory(Trajectory(question=DEMO_QUERY.question, segments=segments))


def scores(parsed: ParsedTrajectory, stage: Stage) -> dict[str, int]:
    evidence = Evidence.of(parsed)
    return {
        rubric.title: true_score(evidence)
        for rubric, true_score in criteria_of(QUESTION).items()
        if rubric.stage == stage
    }


def test_a_value_said_of_its_subject_gets_the_full_score_and_a_bare_value_the_partial_one():
    parsed = researched("<answer>The width of Amber Badger is 130 m. The other has 60 m.</answer>")
    scored = scores(parsed, Stage.ANSWER)
    assert scored["width of Amber Badger"] == 2
    assert scored["width of Tall Fox"] == 1


def test_a_trap_value_is_a_flaw():
    scored = scores(researched("<answer>The width of Amber Badger is 270 m.</answer>"), Stage.ANSWER)
    assert scored["stale value"] == 2


def test_a_source_counts_only_if_a_tool_has_shown_it():
    written_by_policy = f"<think>{PAGE}</think><answer>x</answer>"
    nothing_shown = researched(written_by_policy, page="<tool_output>\nNo results.\n</tool_output>")
    assert scores(nothing_shown, Stage.RESEARCH)["finds the width of Tall Fox"] == 0
    assert scores(researched("<answer>x</answer>"), Stage.RESEARCH)["finds the width of Tall Fox"] == 2


def test_a_page_that_names_another_page_does_not_count_as_that_page():
    page = PAGE.replace("The width is 60 m.", "See https://almanac.example/d128\n for more.")
    scored = scores(researched("<answer>x</answer>", page=page), Stage.RESEARCH)
    assert scored["finds the width of Amber Badger"] == 0


def test_a_review_earns_by_stating_what_was_found_and_loses_by_pretending():
    def audited(review: str) -> tuple[int, int]:
        parsed = researched(f"<review><rubric_review>{review}</rubric_review></review><answer>x</answer>")
        scored = scores(parsed, Stage.REVIEW)
        return scored["audits the width of Tall Fox"], scored["audits the width of Amber Badger"]

    # only Tall Fox's page was shown
    assert audited("Tall Fox is 60 m wide.") == (2, 1)
    assert audited("Tall Fox is 60 m wide; Amber Badger is missing.") == (2, 2)
    assert audited("Amber Badger is 130 m wide.") == (0, 0)


def test_a_repeated_search_is_a_flaw():
    call = '<call_tool name="google_search">tall fox  WIDTH</call_tool>'
    assert scores(researched(call), Stage.RESEARCH)["repeats a search"] == 1


def test_stages_that_never_happened_have_quality_zero():
    plan, _, review, answer = true_quality(QUESTION, researched("<answer></answer>"))
    assert (plan, review, answer) == (0.0, 0.0, 0.0)


def test_the_scripted_researcher_earns_what_the_criteria_add_up_to():
    episode = asyncio.run(run_scripted_episode(shipped_toolbox()))
    plan, research, _, answer = true_quality(QUESTION, episode.read())
    # research: 3+3 for the widths, 2 of 2 x 2 for the seasons, 2 for the closing words, 1 for no repetition: 11 of 13
    assert research == pytest.approx(11 / 13)
    # answer: 3 x 3 for the needs, 2 of 3 x 2 for the conventions, 2 x 3 for no trap, 1 for citations: 18 of 22
    assert answer == pytest.approx(18 / 22)
    assert plan == 1.0


def test_every_question_has_criteria_for_every_stage_and_no_two_alike():
    for question in QUESTIONS:
        rubrics = list(criteria_of(question))
        assert {rubric.stage for rubric in rubrics} == set(STAGES)
        assert len({rubric.id for rubric in rubrics}) == len(rubrics)
