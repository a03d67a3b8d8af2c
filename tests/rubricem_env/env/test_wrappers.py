"""The wrappers and the passive checker."""

import gymnasium
import pytest

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import load_trajectory
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.wrappers import CharacterLimit, EmissionChecker, EmissionWarning, RecordTrajectories
from tests.rubricem_env.env.conftest import ANSWER, CALL


@pytest.fixture
def env(queries, toolbox):
    made = DeepResearchEnv(queries=queries, toolbox=toolbox)
    yield made
    made.close()


def test_the_character_limit_truncates_once_it_is_passed(env):
    # the call is 58 characters: two of them pass a limit of 100
    limited = CharacterLimit(env, 100)
    limited.reset(seed=0)
    assert limited.step(CALL)[3] is False
    assert limited.step(CALL)[3] is True
    limited.reset(seed=0)
    assert limited.step(CALL)[3] is False


def test_an_answer_over_the_character_limit_is_still_a_termination(env):
    limited = CharacterLimit(env, 1)
    limited.reset(seed=0)
    assert limited.step(ANSWER)[2:4] == (True, False)


def test_a_character_limit_below_one_is_refused(env):
    with pytest.raises(UsageError, match="at least 1"):
        CharacterLimit(env, 0)


def test_every_finished_episode_is_recorded_once_and_an_unfinished_one_at_the_next_reset(env, tmp_path):
    path = tmp_path / "deep" / "episodes.jsonl"
    recorded = RecordTrajectories(env, path)
    recorded.reset(seed=0)
    recorded.step(ANSWER)
    recorded.reset(seed=0)
    recorded.step(CALL)
    recorded.reset(seed=0)
    recorded.close()
    endings = [load_trajectory(line).ending for line in path.read_text().splitlines()]
    assert [ending and ending.value for ending in endings] == ["answered", None, None]


def test_wrappers_of_another_environment_are_refused(tmp_path):
    with pytest.raises(UsageError, match="wraps a DeepResearchEnv"):
        RecordTrajectories(gymnasium.make("CartPole-v1"), tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    ("emission", "fix"),
    [
        ('<call_tool name="google_search">q', "include_stop_str_in_output"),
        ("<answer>x", "include_stop_str_in_output"),
        ("<tool_output>x</tool_output>" + CALL, "not the conversation so far"),
        (ANSWER + "<|im_end|>", "skip_special_tokens"),
    ],
)
def test_a_spoilt_emission_is_warned_of_with_the_fix(env, emission, fix):
    checked = EmissionChecker(env)
    checked.reset(seed=0)
    with pytest.warns(EmissionWarning, match=fix):
        checked.step(emission)


def test_an_echoed_prompt_is_warned_of_once(env, recwarn):
    checked = EmissionChecker(env)
    prompt, _ = checked.reset(seed=0)
    with pytest.warns(EmissionWarning, match="prompt \\+ completion"):
        checked.step(prompt + CALL)
    checked.step(prompt + CALL)
    assert not recwarn.list


def test_clean_emissions_are_not_warned_of(env, recwarn):
    checked = EmissionChecker(env)
    checked.reset(seed=0)
    checked.step(CALL)
    checked.step(ANSWER)
    assert not recwarn.list


def test_gymnasium_make_puts_the_checker_around_the_environment():
    env = gymnasium.make("rubricem/DeepResearch-v0")
    env.reset(seed=0)
    with pytest.warns(EmissionWarning, match="skip_special_tokens"):
        env.step(ANSWER + "<|im_end|>")
    env.close()
