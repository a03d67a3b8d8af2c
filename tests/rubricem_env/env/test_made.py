"""What `gymnasium.make` gives: stage rewards without a scorer, and one sentence for each mistake."""

import gymnasium
import numpy as np
import pytest

import rubricem_env
from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Query
from rubricem_env.env import EpisodeLimits, GatheringScorer, ScoreEach
from rubricem_env.judge import GroupScorer, JudgeSettings, RubricBuffer, RulesJudge, StepJudge
from rubricem_env.testing import DEMO_QUERY, ScriptedResearcher
from tests.rubricem_env.env.conftest import ANSWER, CALL, PLAN

ENV_ID = "rubricem/DeepResearch-v0"
assert rubricem_env.__version__


def test_stagewise_rewards_need_no_scorer():
    env = gymnasium.make(ENV_ID, reward="stagewise", queries=[DEMO_QUERY])
    observation, _ = env.reset(seed=0)
    policy, total, is_over = ScriptedResearcher(), 0.0, False
    while not is_over:
        observation, reward, terminated, truncated, info = env.step(policy.emission(observation))
        total, is_over = total + reward, terminated or truncated
    scores = [info[f"score_{stage!s}"] for stage in STAGES]
    assert all(score > 0 for score in scores)
    assert total == pytest.approx(sum(scores))
    env.close()


def test_a_question_of_ones_own_is_scored_by_the_rules():
    env = gymnasium.make(ENV_ID, reward="stagewise")
    env.reset(options={"query": Query(question="How wide is Tall Fox?")})
    info = env.step(ANSWER)[4]
    assert [info[f"unscored_{stage!s}"] for stage in STAGES] == [None] * 4
    env.close()


def test_missing_scores_of_the_vector_environment_are_nan_in_every_step():
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, reward="stagewise")
    envs.reset(seed=0)
    first = envs.step((PLAN + CALL, CALL))[4]
    assert np.isnan(first["score_plan"]).tolist() == [False, True]
    assert np.isnan(first["score_answer"]).tolist() == [True, True]
    last = envs.step((ANSWER, ANSWER))[4]
    assert all(last[f"score_{stage!s}"].dtype == np.float64 for stage in STAGES)
    assert last["_score_plan"].tolist() == [False, True]
    envs.close()


QUERIES_BY_KEY = r"\{query.key: query for query in queries\}"
JUDGE = RulesJudge()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rewards": "answer"}, "no argument 'rewards'; did you mean 'reward'"),
        ({"seed": 1}, "no argument 'seed'; the keys are queries, toolbox, limits, reward"),
        ({"scorer": JUDGE}, r"scorer is a RulesJudge; .*Write scorer=RulesScorer\(queries\)"),
        ({"scorer": RulesJudge}, "scorer is the class RulesJudge; a scorer is an object"),
        ({"scorer": "rules"}, r"scorer is a str; .*RulesScorer\(queries\), from rubricem_env.judge"),
        ({"scorer": StepJudge(JUDGE, RubricBuffer())}, rf"Write GroupScorer\(step_judge, {QUERIES_BY_KEY}"),
        ({"render_mode": "human"}, "render_mode is 'human'; this environment has 'ansi'"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_to_write(arguments, sentence):
    for make in (gymnasium.make, gymnasium.make_vec):
        with pytest.raises(UsageError, match=f"(?i){sentence}"):
            make(ENV_ID, **arguments)


def test_a_number_of_steps_of_many_episodes_is_refused_with_the_limits_to_write():
    with pytest.raises(UsageError, match="make_vec has no max_episode_steps; write limits=EpisodeLimits"):
        gymnasium.make_vec(ENV_ID, num_envs=2, max_episode_steps=3)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: GroupScorer(JUDGE), r"Write GroupScorer\(StepJudge\(judge, RubricBuffer\(\)\)"),
        (lambda: GroupScorer(StepJudge(JUDGE, RubricBuffer()), [DEMO_QUERY]), QUERIES_BY_KEY),
        (lambda: StepJudge(RubricBuffer(), JUDGE), "StepJudge got RubricBuffer; a judge is an object"),
        (lambda: StepJudge(JUDGE, {}), "the buffer of StepJudge is a dict"),
        (lambda: ScoreEach(JUDGE), "ScoreEach got a RulesJudge; it wraps a function"),
        (lambda: GatheringScorer(JUDGE, 2), "scorer is a RulesJudge"),
        (lambda: EpisodeLimits(max_call=3), "EpisodeLimits has no setting 'max_call'; did you mean 'max_calls'"),
        (lambda: EpisodeLimits(3), r"by name: EpisodeLimits\(max_calls=...\)"),
        (lambda: EpisodeLimits(max_calls="3"), "at max_calls: input should be a valid integer"),
        (lambda: JudgeSettings(sed=1), "did you mean 'seed'"),
    ],
)
def test_what_cannot_work_is_refused_at_construction(make, sentence):
    with pytest.raises(UsageError, match=sentence):
        make()


class Silent:
    async def score(self, trajectories):
        return None


def test_a_scorer_that_returns_no_judgements_is_named():
    env = gymnasium.make(ENV_ID, reward="answer", scorer=Silent())
    env.reset(seed=0)
    with pytest.raises(UsageError, match=r"Silent.score returned a NoneType for 1 trajectories; it returns a list"):
        env.step(ANSWER)
    env.close()
