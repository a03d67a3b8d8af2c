"""The judge without a model."""

import pytest

from rubricem_env.domain.base import Stage
from rubricem_env.domain.trajectory import Ending, Origin, Segment, ToolStatus, Trajectory
from rubricem_env.judge.base import Contrast, ScoringRequest
from rubricem_env.judge.rules.facts import gather_facts
from rubricem_env.judge.rules.key_terms import cover, find_quote, key_terms
from rubricem_env.judge.rules.rules_judge import RulesJudge
from rubricem_env.scaffold.parsed import parse_trajectory
from rubricem_env.testing.judges import (
    ANSWER,
    PLAN,
    POOR_ANSWER,
    POOR_PLAN,
    QUESTION,
    REVIEW,
    attempt,
    call,
    careless,
    policy,
    tool,
)
from tests.fakes import rubric


async def propose(*trajectories):
    parsed = tuple(parse_trajectory(trajectory) for trajectory in trajectories)
    return await RulesJudge().propose(Contrast(QUESTION, parsed, step=4))


async def score(trajectory, criterion):
    found = await RulesJudge().score(ScoringRequest(QUESTION, parse_trajectory(trajectory), (criterion,)))
    return found.rubric_scores[criterion.id]


async def proposed(title, *trajectories):
    return next(r for r in (await propose(*trajectories)).rubrics if r.title == title)


async def test_only_what_separates_the_group_is_proposed():
    found = await propose(attempt(), attempt(answer=POOR_ANSWER))
    assert {r.stage for r in found.rubrics} == {Stage.ANSWER}
    assert (await propose(attempt(), attempt())).rubrics == ()


async def test_proposals_are_the_same_whatever_the_order():
    assert await propose(attempt(), careless()) == await propose(careless(), attempt())


@pytest.mark.parametrize(
    ("title", "other"),
    [
        ("Analysis takes up what the question asks", attempt(plan=POOR_PLAN)),
        ("Requirements are several and concrete", attempt(plan=POOR_PLAN)),
        ("Each requirement has a step that serves it", attempt(plan=POOR_PLAN)),
        ("Queries aim at the question's subjects", careless()),
        ("Each search asks something new", careless()),
        ("Results are weighed by name", careless()),
        ("Leaves a failed search unanswered", careless()),
        ("Checks what the question asked, point by point", attempt(review="<review>fine</review>")),
        ("Names the evidence behind its verdicts", attempt(review="<review>fine</review>")),
        ("Writing plan serves the requirements", attempt(review="<review>fine</review>")),
        ("Answers each part of the question", attempt(answer=POOR_ANSWER)),
        ("Claims carry citations that resolve", attempt(answer=POOR_ANSWER)),
        ("Cites what was never shown", attempt(answer=POOR_ANSWER)),
        ("Breaks off", attempt(answer=ANSWER[:60])),
    ],
)
async def test_each_rule_prefers_the_attempt_that_does_it(title, other):
    criterion = await proposed(title, attempt(), other)
    good, poor = await score(attempt(), criterion), await score(other, criterion)
    better, worse = (poor, good) if criterion.polarity == "negative" else (good, poor)
    assert better.score > worse.score
    assert good.justification
    assert poor.justification


async def test_an_attempt_without_a_search_asks_nothing_anew():
    criterion = await proposed("Each search asks something new", attempt(), careless())
    found = await score(
        Trajectory(question=QUESTION, segments=(policy(f"{PLAN}<state_evaluation>s</state_evaluation>{ANSWER}"),)),
        criterion,
    )
    assert (found.score, found.justification) == (0, "no search was made")


async def test_an_answer_that_breaks_off_is_shown_by_its_last_hundred_characters():
    criterion = await proposed("Breaks off", attempt(), attempt(answer=ANSWER[:60]))
    found = await score(attempt(answer="<answer>" + "x" * 50 + "y" * 100), criterion)
    assert found.justification == f"the answer ends with “{'y' * 100}”"
    assert (await score(attempt(), criterion)).score == 0


async def test_a_justification_quotes_the_attempt():
    criterion = await proposed("Answers each part of the question", attempt(), attempt(answer=POOR_ANSWER))
    assert "“To compare the rivers: Amber Badger is wider" in (await score(attempt(), criterion)).justification


async def test_dimensions_that_several_plans_name_are_looked_for_in_later_stages():
    # both plans ask for the season of measurement, which the question does not name
    found = await propose(attempt(), attempt(answer="<answer>Amber Badger is wider.</answer>"))
    pooled = next(r for r in found.rubrics if r.title.startswith("Covers what several plans"))
    assert "measurement, season" in pooled.description
    assert (await score(attempt(), pooled)).score == 2


async def test_a_given_rubric_is_scored_by_its_key_terms():
    given = rubric("States the season of measurement and low water", persistent=True)
    # season, measurement, low, water: all four are in the answer
    assert (await score(attempt(), given)).score == 2
    assert (await score(attempt(answer="<answer>At low water.</answer>"), given)).score == 1
    assert (await score(attempt(answer=POOR_ANSWER), given)).score == 0


@pytest.mark.parametrize("status", [ToolStatus.ERROR, ToolStatus.EMPTY, ToolStatus.RATE_LIMITED])
async def test_a_failed_search_that_another_one_makes_good_is_no_flaw(status):
    criterion = await proposed("Leaves a failed search unanswered", attempt(), careless())
    recovered = Trajectory(
        question=QUESTION,
        segments=(
            policy(PLAN + call("rivers")),
            tool("rivers", "", "", status=status),
            policy(call("Amber Badger width")),
            tool("Amber Badger width", "S_1", "130 m"),
            policy(REVIEW + ANSWER),
        ),
        ending=Ending.ANSWERED,
    )
    assert (await score(recovered, criterion)).score == 0


def test_files_from_elsewhere_have_their_calls_read_from_the_policys_text():
    foreign = attempt()
    bare = tuple(s.model_copy(update={"observation": None}) for s in foreign.segments)
    facts = gather_facts(QUESTION, parse_trajectory(foreign.model_copy(update={"segments": bare})))
    assert facts.queries == ("Amber Badger river width", "Tall Fox river width season")
    assert {status for _, status in facts.calls} == {None}


def test_a_trajectory_without_text_has_no_facts_and_no_crash():
    prompt = Segment(origin=Origin.PROMPT, text="q")
    facts = gather_facts("q", parse_trajectory(Trajectory(question="q", segments=(prompt,))))
    assert (facts.queries, facts.requirements, facts.evaluations) == ((), (), ())


def test_key_terms_are_content_words_with_their_endings_cut():
    assert key_terms("Which measurements of the rivers were taken?") == ("measurement", "river", "taken")
    assert cover(("river", "130", "ocean"), "130 m at both rivers") == ("river", "130")


def test_a_quote_is_the_sentence_that_holds_most():
    assert find_quote("Nothing here. The river is wide. End.", ("river", "wide")) == "“The river is wide.”"
    assert find_quote("<b></b>") == "nothing is written there"
