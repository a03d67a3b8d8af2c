"""The wrappers and the passive checker."""

import gymnasium
import pytest

from rubricem_env.domain.base import STAGES
from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import load_trajectory
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.wrappers import CharacterLimit, EmissionChecker, EmissionWarning, RecordTrajectories
from rubricem_env.judge.rules.rules_scorer import RulesScorer
from tests.rubricem_env.env.conftest import ANSWER, CALL, PLAN


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


def test_a_misspelt_tool_is_warned_of_with_the_tool_that_was_called(env):
    checked = EmissionChecker(env)
    checked.reset(seed=0)
    with pytest.warns(EmissionWarning, match="turn 1: the emission calls 'gogle', which was read as google_search"):
        checked.step('<call_tool name="gogle">Tall Fox width</call_tool>')


def test_what_was_written_before_the_character_limit_is_scored(queries, toolbox):
    env = DeepResearchEnv(queries=queries, toolbox=toolbox, reward="stagewise", scorer=RulesScorer(queries))
    limited = CharacterLimit(env, 1)
    limited.reset(seed=0)
    _, reward, _, truncated, info = limited.step(PLAN + CALL)
    scores = [info[f"score_{stage!s}"] for stage in STAGES]
    # the plan was paid when it was written, review and answer never happened: 0
    assert truncated
    assert info["ending"] == "token_budget"
    assert scores[2:] == [0.0, 0.0]
    assert reward == sum(scores)
    env.close()


def test_an_episode_that_gymnasium_cuts_says_that_its_answer_was_not_asked(queries, toolbox):
    env = DeepResearchEnv(queries=queries, toolbox=toolbox, reward="stagewise", scorer=RulesScorer(queries))
    limited = gymnasium.wrappers.TimeLimit(env, 1)
    limited.reset(seed=0)
    _, _, _, truncated, info = limited.step(CALL)
    assert (truncated, info["score_answer"], info["unscored_answer"]) == (True, None, "not_asked")
    reward, info = env.truncate()
    assert info["ending"] == "turn_budget"
    assert reward == sum(info[f"score_{stage!s}"] for stage in STAGES)
    env.close()


@pytest.mark.parametrize("limit", ["a", 1.5, None, True])
def test_a_character_limit_that_is_no_whole_number_is_refused(env, limit):
    with pytest.raises(UsageError, match=r"it must be a whole number, at least 1. Write CharacterLimit\(env, 20_000\)"):
        CharacterLimit(env, limit)


def test_a_record_that_cannot_be_written_is_refused_at_construction(env, tmp_path):
    with pytest.raises(UsageError, match=r"cannot write to .*: Is a directory. Give a file"):
        RecordTrajectories(env, tmp_path)
