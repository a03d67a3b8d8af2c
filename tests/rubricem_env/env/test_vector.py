"""Many episodes on one loop: text stays text, calls overlap, groups are scored in one call."""

import asyncio

import gymnasium
import numpy as np
import pytest

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.judgement import Judgement, StageScore
from rubricem_env.domain.trajectory import ToolResult, ToolStatus
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.text_space import AnyText
from rubricem_env.env.vector import DeepResearchVectorEnv
from tests.rubricem_env.env.conftest import ANSWER, CALL, PLAN, REVIEW


class GroupCounter:
    """Scores by place in the group and remembers how it was asked."""

    def __init__(self) -> None:
        self.group_sizes: list[int] = []

    async def score(self, trajectories):
        self.group_sizes.append(len(trajectories))
        return [
            Judgement.of({stage: StageScore(score=place / 4) for stage in STAGES}) for place in range(len(trajectories))
        ]


@pytest.fixture
def envs(queries, toolbox):
    made = DeepResearchVectorEnv(3, queries=queries, toolbox=toolbox)
    yield made
    made.close()


def test_gymnasiums_processes_refuse_shared_memory_and_carry_text_without_it():
    with pytest.raises(UsageError, match=r"Leave the mode out .*, or add vector_kwargs=\{'shared_memory': False\}"):
        gymnasium.make_vec("rubricem/DeepResearch-v0", num_envs=1, vectorization_mode="async")
    envs = gymnasium.make_vec(
        "rubricem/DeepResearch-v0",
        num_envs=1,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False},
        prompt=accented,
    )
    assert envs.reset(seed=0)[0] == (ACCENTED,)
    envs.close()


ACCENTED = "|\u00e9t\u00e9 \U0001f40d"


def accented(query):
    return ACCENTED


def test_text_arrives_whole(envs):
    observations, infos = envs.reset(seed=0)
    assert all(text.startswith("Question ") for text in observations)
    assert infos["answer_format"].tolist() == ["long"] * 3
    observations, _, terminated, truncated, infos = envs.step((CALL, ANSWER, "\u00e9t\u00e9 \U0001f40d"))
    assert "60 m" in observations[0]
    assert terminated.tolist() == [False, True, False]
    assert truncated.tolist() == [False, False, False]
    assert infos["violations"].tolist()[2] == "no_action"


def test_make_vec_gives_the_vector_environment():
    envs = gymnasium.make_vec("rubricem/DeepResearch-v0", num_envs=2)
    assert isinstance(envs.unwrapped, DeepResearchVectorEnv)
    envs.close()


def test_tool_calls_of_one_step_overlap(queries):
    class Meeting:
        """Answers only once three calls are waiting together."""

        names = ("google_search",)

        def __init__(self) -> None:
            self.barrier = asyncio.Barrier(3)

        async def call(self, call):
            async with asyncio.timeout(10):
                await self.barrier.wait()
            return ToolResult(status=ToolStatus.EMPTY)

    envs = DeepResearchVectorEnv(3, queries=queries, toolbox=Meeting())
    envs.reset(seed=0)
    infos = envs.step((CALL, CALL, CALL))[4]
    assert infos["tool_status"].tolist() == ["empty"] * 3
    envs.close()


def test_an_episode_that_is_over_ignores_its_action_and_repeats_its_flag(envs):
    envs.reset(seed=0)
    envs.step((ANSWER, CALL, CALL))
    _, rewards, terminated, _, _ = envs.step((CALL, CALL, CALL))
    assert terminated.tolist() == [True, False, False]
    assert rewards.tolist() == [0.0, 0.0, 0.0]
    assert len(envs.trajectories[0].segments) == 2


def test_only_masked_episodes_are_reset(envs):
    envs.reset(seed=0)
    envs.step((ANSWER, CALL, CALL))
    _, infos = envs.reset(options={"reset_mask": np.array([True, False, False]), "question": "Why?"})
    assert envs.trajectories[0].question == "Why?"
    assert len(envs.trajectories[1].segments) == 3
    assert infos["_query_key"].tolist() == [True, False, False]


def test_a_group_of_one_question_is_scored_in_one_call_when_its_last_episode_ends(queries, toolbox):
    scorer = GroupCounter()
    envs = DeepResearchVectorEnv(3, queries=queries, toolbox=toolbox, reward="answer", scorer=scorer)
    envs.reset(options={"question": "One for all?"})
    assert envs.step((ANSWER, CALL, ANSWER))[1].tolist() == [0.0, 0.0, 0.0]
    rewards, infos = envs.step(("", ANSWER, ""))[1::3]
    assert scorer.group_sizes == [3]
    assert rewards.tolist() == [0.0, 0.25, 0.5]
    assert infos["score_answer"].tolist() == [0.0, 0.25, 0.5]
    assert envs.step(("", "", ""))[1].tolist() == [0.0, 0.0, 0.0]
    envs.close()


def test_seeds_make_episodes_repeatable(envs):
    first, _ = envs.reset(seed=5)
    again, _ = envs.reset(seed=[5, 6, 7])
    assert first == again
    assert envs.reset(seed=np.int64(5))[0] == first
    assert envs.reset(seed=np.array([5, 6, 7]))[0] == first
    assert [trajectory.seed for trajectory in envs.trajectories] == [5, 6, 7]


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda envs: envs.step((CALL,)), "got 1 actions for 3 episodes"),
        (lambda envs: envs.step("abc"), "got one str for 3 episodes; give one text for each"),
        (lambda envs: envs.step(3), "got one int for 3 episodes; give one text for each"),
        (
            lambda envs: envs.step([CALL, None, CALL]),
            "action 1 of step\\(\\) is a NoneType; each must be the text of one emission",
        ),
        (lambda envs: envs.step([b"a", b"b", b"c"]), "action 0 of step\\(\\) is a bytes"),
        (lambda envs: envs.reset(seed=1.5), "seed is 1.5; it must be a whole number, or a list"),
        (lambda envs: envs.reset(seed=[1]), "got 1 seeds"),
        (lambda envs: envs.reset(options={"reset_mask": [1, 0, 1]}), "3 booleans"),
    ],
)
def test_misuse_is_refused_with_the_way_out(envs, use, sentence):
    envs.reset(seed=0)
    with pytest.raises(UsageError, match=sentence):
        use(envs)


def test_an_empty_vector_and_a_step_before_reset_are_refused(envs, toolbox):
    with pytest.raises(UsageError, match="at least one episode"):
        DeepResearchVectorEnv(0, toolbox=toolbox)
    with pytest.raises(UsageError, match="call reset"):
        envs.step((CALL, CALL, CALL))


def test_each_episode_renders_if_asked(queries, toolbox):
    envs = DeepResearchVectorEnv(2, queries=queries, toolbox=toolbox, render_mode="ansi")
    envs.reset(seed=0)
    envs.step((ANSWER, CALL))
    assert ["ANSWER" in text for text in envs.render()] == [True, False]
    envs.render_mode = None
    assert envs.render() is None
    envs.close()


def test_the_text_space_takes_any_text_and_nothing_else():
    space = AnyText(10)
    assert space.contains("")
    assert space.contains("\u05d0 <\n")
    assert not space.contains("x" * 11)
    assert not space.contains(7)
    assert space.contains(AnyText(seed=0).sample()[:10])
    assert space == AnyText(10)
    assert hash(space) == hash(AnyText(10))
    assert space != gymnasium.spaces.Text(10)
    assert repr(space) == "AnyText(10)"


def test_the_vector_environment_plays_like_the_single_one(queries, toolbox):
    single = DeepResearchEnv(queries=queries, toolbox=toolbox)
    envs = DeepResearchVectorEnv(1, queries=queries, toolbox=toolbox)
    single.reset(seed=4)
    envs.reset(seed=4)
    for text in (PLAN + CALL, REVIEW + ANSWER):
        one, many = single.step(text), envs.step((text,))
        assert (one[0], one[1], one[2], one[3]) == (many[0][0], many[1][0], many[2][0], many[3][0])
    assert single.trajectory == envs.trajectories[0]
    single.close()
    envs.close()


def test_the_spaces_of_the_vector_are_those_of_one_environment_for_each(queries, toolbox):
    envs = DeepResearchVectorEnv(3, queries=queries, toolbox=toolbox)
    for space in (envs.action_space, envs.observation_space):
        assert space.contains(("a", "b", "c"))
    envs.close()


def test_each_episode_has_the_view_of_its_own(queries, toolbox):
    limits = EpisodeLimits(max_calls=50, max_turns=60, max_tokens=100_000)
    context = ContextLimits(fold_at=400, fold_to=300, keep=1)
    env = DeepResearchVectorEnv(2, queries=queries, toolbox=toolbox, limits=limits, context=context)
    prompts, infos = env.reset(seed=0)
    assert list(infos["view"]) == [[{"role": "user", "content": prompt}] for prompt in prompts]
    for _ in range(8):
        observations, *_, infos = env.step([CALL, f"<think>{'so ' * 90}</think>{CALL}"])
    assert [view[-1]["content"] for view in infos["view"]] == list(observations)
    assert infos["folds"][1] > infos["folds"][0] > 0
    env.close()
