"""Rewards of groups in a vector environment."""

from types import SimpleNamespace

import numpy as np
import pytest

from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.rewards import GatheringScorer, stages_to_score
from rubricem_env.env.vector import DeepResearchVectorEnv
from rubricem_env.scaffold.grammar import DEFAULT
from rubricem_env.scaffold.parser import parse_turn
from tests.rubricem_env.env.conftest import ANSWER, CALL, PLAN, REVIEW


class FullMarks:
    """Gives every stage 1.0 and remembers the questions it was asked about."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def score(self, trajectories):
        self.asked.append([trajectory.question for trajectory in trajectories])
        return [Judgement.of({stage: StageScore(score=1.0) for stage in STAGES}) for _ in trajectories]


@pytest.fixture
def staged(queries, toolbox):
    """Two episodes at one question, paid by stages."""
    made = DeepResearchVectorEnv(2, queries=queries, toolbox=toolbox, reward="stagewise", scorer=FullMarks())
    made.reset(options={"question": "One?"})
    yield made
    made.close()


def ask(envs, place, question):
    """Begin a new episode in one place."""
    mask = np.arange(envs.num_envs) == place
    envs.reset(options={"reset_mask": mask, "question": question})


def test_a_group_is_paid_every_stage_at_once_the_plan_as_well(staged):
    assert staged.step((PLAN + CALL, PLAN + CALL))[1].tolist() == [0.0, 0.0]
    rewards, infos = staged.step((REVIEW + ANSWER, REVIEW + ANSWER))[1::3]
    # four stages with 1.0 each, as the single environment pays over an episode
    assert rewards.tolist() == [4.0, 4.0]
    assert infos["score_plan"].tolist() == [1.0, 1.0]
    assert staged.env_spec.scorer.asked == [["One?", "One?"]]


def test_an_episode_that_waits_for_its_group_is_paid_every_stage_too(staged):
    assert staged.step((PLAN + CALL, CALL))[1].tolist() == [0.0, 0.0]
    assert staged.step((REVIEW + ANSWER, CALL))[1].tolist() == [0.0, 0.0]
    assert staged.step(("", ANSWER))[1].tolist() == [4.0, 4.0]


def test_an_episode_that_is_paid_joins_no_later_group_of_its_question(staged):
    ask(staged, 1, "Two?")
    assert staged.step((ANSWER, CALL))[1].tolist() == [4.0, 0.0]
    ask(staged, 1, "One?")
    rewards, infos = staged.step(("", ANSWER))[1::3]
    assert rewards.tolist() == [0.0, 4.0]
    assert infos["_score_answer"].tolist() == [False, True]
    assert staged.env_spec.scorer.asked == [["One?"], ["One?"]]


def test_a_plan_that_was_paid_alone_is_not_paid_again_with_the_group(staged):
    ask(staged, 1, "Two?")
    assert staged.step((PLAN + CALL, CALL))[1].tolist() == [1.0, 0.0]
    ask(staged, 1, "One?")
    assert staged.step((REVIEW + ANSWER, ANSWER))[1].tolist() == [3.0, 4.0]


def test_a_plan_that_a_group_left_unpaid_is_paid_to_the_one_who_stays(staged):
    staged.step((PLAN + CALL, PLAN + CALL))
    ask(staged, 1, "Two?")
    assert staged.step((REVIEW + ANSWER, CALL))[1].tolist() == [4.0, 0.0]


def test_an_episode_whose_last_sibling_is_taken_away_does_not_wait_for_ever(staged):
    assert staged.step((ANSWER, CALL))[1].tolist() == [0.0, 0.0]
    ask(staged, 1, "Two?")
    assert staged.step(("", CALL))[1].tolist() == [4.0, 0.0]
    assert staged.step(("", CALL))[1].tolist() == [0.0, 0.0]


def test_a_second_attempt_in_the_place_of_a_paid_one_is_paid_as_well(staged):
    for _ in range(2):
        ask(staged, 1, "Two?")
        assert staged.step((CALL, ANSWER))[1].tolist() == [0.0, 4.0]


@pytest.mark.parametrize("texts", [(CALL, PLAN + CALL, ANSWER), (PLAN + CALL, PLAN + CALL, ANSWER), (PLAN + ANSWER,)])
def test_an_episode_alone_is_paid_to_the_cent_like_the_single_environment(queries, toolbox, texts):
    options = {"question": "One?"}
    single = DeepResearchEnv(queries=queries, toolbox=toolbox, reward="stagewise", scorer=FullMarks())
    envs = DeepResearchVectorEnv(1, queries=queries, toolbox=toolbox, reward="stagewise", scorer=FullMarks())
    single.reset(options=options)
    envs.reset(options=options)
    total = 0.0
    for text in texts:
        one, many = single.step(text), envs.step((text,))
        assert (one[1], {f"_{name}" for name in one[4]}) == (many[1][0], {name for name in many[4] if name[0] == "_"})
        total += one[1]
    # every stage once, also where the plan came after a search and was not paid when it closed
    assert total == 4.0
    single.close()
    envs.close()


LATER = (Stage.RESEARCH, Stage.REVIEW, Stage.ANSWER)


@pytest.mark.parametrize(
    ("turns", "is_over", "paid"),
    [
        ((PLAN,), False, (Stage.PLAN,)),
        ((PLAN + CALL,), False, (Stage.PLAN,)),
        ((PLAN, CALL), False, ()),
        ((CALL,), False, ()),
        # A plan after the first search is not the first plan; it is paid with the rest.
        ((CALL, PLAN + CALL), False, ()),
        ((CALL, PLAN + ANSWER), True, STAGES),
        ((PLAN, ANSWER), True, LATER),
        ((PLAN + ANSWER,), True, STAGES),
        ((ANSWER,), True, STAGES),
    ],
)
def test_the_first_plan_is_paid_when_it_is_written_and_the_rest_at_the_end(turns, is_over, paid):
    episode = SimpleNamespace(turns=[parse_turn(text) for text in turns], is_over=is_over, scaffold=DEFAULT)
    assert stages_to_score(episode, "stagewise", None) == paid
    assert stages_to_score(episode, "answer", None) == ((Stage.ANSWER,) if is_over else ())
    assert stages_to_score(episode, "none", None) == ()


@pytest.mark.parametrize(("group_size", "paid"), [(1, (Stage.PLAN,)), (2, ())])
def test_the_plan_of_a_group_is_paid_at_the_end_and_that_of_one_alone_at_once(group_size, paid):
    scorer = GatheringScorer(FullMarks(), group_size)
    assert (
        stages_to_score(SimpleNamespace(turns=[parse_turn(PLAN)], is_over=False, scaffold=DEFAULT), "stagewise", scorer)
        == paid
    )


@pytest.mark.parametrize(("group_size", "patience"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, -1.0)])
def test_a_group_of_nobody_or_without_patience_is_refused(group_size, patience):
    with pytest.raises(UsageError, match="they must be at least 1 and above 0"):
        GatheringScorer(FullMarks(), group_size, patience=patience)
