"""gem's own registry and vector environments, and Gymnasium's own checker beside them; gem has none."""

import pytest

pytest.importorskip("gem", reason="gem is not installed; run make adapter-gem")

import gem
import gymnasium
from gem.envs.registration import ENV_REGISTRY
from gymnasium.utils.env_checker import check_env

from docs.adapters.tutor import tutored_query
from rubricem_env.adapters.gem import ResearchGemEnv
from rubricem_env.adapters.session import offline_scorer
from rubricem_env.registration import ENV_ID, register_environments
from tests.adapters import snippets
from tests.adapters.golden_group import SIZE, assert_golden_judgements, group_scorer, tutor
from tests.letters import BRIEF, LETTER
from tests.scaffolds import WRITING


@pytest.fixture
def registered():
    gem.register("rubricem:test", "rubricem_env.adapters.gem:ResearchGemEnv", queries=[tutored_query()])
    yield "rubricem:test"
    del ENV_REGISTRY["rubricem:test"]


def play(env, place):
    write = tutor(place)
    observation, _ = env.reset(seed=place)
    observation, reward, terminated, truncated, info = env.step(write(observation))
    while not (terminated or truncated):
        observation, reward, terminated, truncated, info = env.step(write(observation))
    return reward, info


async def test_the_trajectories_of_a_group_get_the_golden_scores(registered):
    envs = [gem.make(registered) for _ in range(SIZE)]
    for place, env in enumerate(envs):
        play(env, place)
    assert_golden_judgements(await group_scorer().score([env.trajectory for env in envs]))
    for env in envs:
        env.close()


def test_the_reward_is_a_scalar_and_the_score_is_in_the_info(registered):
    env = gem.make(registered, reward="answer", scorer=group_scorer())
    reward, info = play(env, 0)
    assert (reward, info["score_answer"]) == (1.0, 1.0)
    env.close()


def test_gems_threads_step_a_vector_of_environments(registered):
    envs = gem.make_vec([registered] * 4, async_mode=True, seed=5)
    envs.reset()
    _, rewards, terminations, truncations, _ = envs.step(["<answer>60 m</answer>"] * 4)
    assert list(terminations) == [True] * 4
    assert list(truncations) == [False] * 4
    assert list(rewards) == [0.0] * 4


def test_a_spawned_copy_of_the_state_reads_the_same_next():
    env, write = ResearchGemEnv(queries=[tutored_query()]), tutor(0)
    observation, _ = env.reset(seed=1)
    observation = env.step(write(observation))[0]
    copy, fresh = env.spawn(same_state=True), env.spawn()
    assert copy.trajectory.segments == env.trajectory.segments
    action = write(observation)
    assert copy.step(action)[0] == env.step(action)[0]
    assert fresh.reset(seed=1)[0] == tutored_query().question
    for one in (env, copy, fresh):
        one.close()


def test_a_policy_that_never_ends_is_ended_by_the_limits(registered):
    env = gem.make(registered)
    env.reset(seed=0)
    env.step("and on")
    _, _, terminated, truncated, info = env.step("and on")
    assert (terminated, truncated, info["ending"]) == (False, True, "stalled")
    env.close()


def test_a_letter_is_written_in_the_stages_of_writing():
    env = ResearchGemEnv(queries=[BRIEF], scaffold="writing", reward="answer", scorer=offline_scorer([BRIEF], WRITING))
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(LETTER)
    assert (terminated, reward) == (True, info["score_final"])
    env.reset(seed=0)
    *_, ended, _, info = env.step(env.sample_random_action())
    assert (ended, info["ending"]) == (True, "answered")
    env.close()


def test_gymnasiums_checker_accepts_the_environment_underneath():
    register_environments()
    env = gymnasium.make(ENV_ID, disable_env_checker=True).unwrapped
    check_env(env, skip_render_check=True)
    env.close()


def test_the_three_lines_of_the_docs_play_a_scored_episode():
    lines = snippets.snippet("gem")
    assert len(snippets.statements(lines)) <= 3
    env = snippets.run(lines)["env"]
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("<answer>I do not know.</answer>")
    assert (terminated, reward, info["score_answer"]) == (True, info["score_answer"], info["score_answer"])
    env.close()
    del ENV_REGISTRY["rubricem:almanac"]


def test_the_whole_program_of_the_page_runs_alone_in_an_empty_folder(tmp_path):
    snippets.run_program("gem", tmp_path)
