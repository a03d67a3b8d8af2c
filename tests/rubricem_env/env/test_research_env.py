"""The Gymnasium environment: contract, questions, rewards, messages."""

import re

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import rubricem_env
from rubricem_env.domain.base import STAGES, Stage
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.judgement import Judgement, StageScore, Unscored
from rubricem_env.domain.trajectory import Query, ToolCall, ToolResult, ToolStatus, Trajectory
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import Episode, EpisodeLimits
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.rewards import ScoreEach
from rubricem_env.env.spec import make_env_spec
from rubricem_env.env.wrappers import CharacterLimit, EmissionChecker
from rubricem_env.scaffold.parsed import parse_trajectory
from tests.rubricem_env.env.conftest import ANSWER, CALL, PLAN, REVIEW

# plan 0.25, research 0.5, review 0.75, answer 1.0
SCORES = {stage: StageScore(score=(stage.position + 1) / 4) for stage in STAGES}


def all_scored(trajectory: Trajectory) -> Judgement:
    return Judgement.of(SCORES)


def answer_unscored(trajectory: Trajectory) -> Judgement:
    return Judgement.of({**SCORES, Stage.ANSWER: Unscored(reason="judge_failed", detail="down")})


@pytest.fixture
def env(queries, toolbox):
    made = DeepResearchEnv(queries=queries, toolbox=toolbox)
    yield made
    made.close()


def test_gymnasium_finds_the_environment_by_its_id_and_by_module_and_id():
    for name in ("rubricem/DeepResearch-v0", "rubricem_env:rubricem/DeepResearch-v0"):
        env = gymnasium.make(name)
        observation, info = env.reset(seed=0)
        assert observation
        assert set(info) == {"query_key", "answer_format"}
        env.close()
    assert rubricem_env.__version__


def test_gymnasiums_own_checker_is_content():
    env = gymnasium.make("rubricem/DeepResearch-v0", render_mode="ansi")
    check_env(env.unwrapped)
    env.close()


def test_the_same_seed_draws_the_same_question(env):
    assert env.reset(seed=3)[0] == env.reset(seed=3)[0]
    assert {env.reset(seed=seed)[0] for seed in range(30)} == {f"Question {number}?" for number in range(5)}


def test_reset_takes_a_question_from_its_options(env):
    observation, info = env.reset(options={"question": "Why?", "answer_format": "exact"})
    assert observation == "Why?"
    assert info["answer_format"] == "exact"
    assert env.reset(options={"query": Query(question="How?")})[0] == "How?"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"question": "  "}, "at least one visible character"),
        ({"question": "q", "answer_format": "haiku"}, "at answer_format: input should be 'exact', 'short' or 'long'"),
        ({"query": "q"}, "For plain text use 'question'"),
        ({"qestion": "q"}, "it knows query, question, answer_format"),
    ],
)
def test_bad_reset_options_are_refused_with_the_way_out(env, options, sentence):
    with pytest.raises(UsageError, match=sentence):
        env.reset(options=options)


def test_an_environment_without_questions_says_how_to_give_one(toolbox):
    env = DeepResearchEnv(queries=(), toolbox=toolbox)
    with pytest.raises(UsageError, match="pass queries="):
        env.reset()


def test_an_episode_terminates_with_the_answer_and_info_says_how_it_went(env):
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(PLAN + CALL)
    assert "60 m" in observation
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["calls_used"] == 1
    assert info["calls_left"] == 9
    assert info["tool_status"] == "ok"
    assert info["violations"] == ""
    assert env.step(REVIEW + ANSWER)[2:4] == (True, False)


def test_a_budget_truncates_and_does_not_terminate(env):
    env.reset(seed=0)
    env.step("hm")
    _, _, terminated, truncated, info = env.step("hm")
    assert (terminated, truncated) == (False, True)
    assert info["ending"] == "stalled"
    assert info["violations"] == "no_action"


def test_info_names_the_violations_of_the_whole_episode(env):
    env.reset(seed=0)
    info = env.step(ANSWER)[-1]
    # The emission itself is well formed; its place in the episode is not.
    assert info["violations"] == ""
    assert info["episode_violations"] == "missing_think,missing_plan,answer_in_first_turn,missing_review"

    env.reset(seed=0)
    assert env.step("hm")[-1]["episode_violations"] == "no_action,missing_think"
    middle = env.step(PLAN + CALL)[-1]
    assert (middle["violations"], middle["episode_violations"]) == ("", "no_action,missing_think")
    last = env.step(
        f"<think>t</think><state_evaluation>s</state_evaluation>{REVIEW}<answer><cite id='S_9'>x</cite></answer>"
    )
    # Those of the record as a whole come last: the answer cites what no tool has shown.
    assert last[-1]["episode_violations"] == "no_action,missing_think,unknown_citation"


@pytest.mark.parametrize("asks", [True, False])
def test_violations_that_were_asked_for_turn_by_turn_are_those_of_the_record(asks):
    episode = Episode(Query(question="Why?"))
    for text in ("hm", PLAN + CALL, f"{REVIEW}{CALL}", f"{PLAN}<answer><cite id='S_1'>x</cite></answer>"):
        reply = episode.emit(text)
        assert not asks or episode.violations
        if isinstance(reply, ToolCall):
            episode.observe(ToolResult(status=ToolStatus.ERROR, message="down"))
    assert episode.violations == parse_trajectory(episode.trajectory).violations
    assert len({violation.code for violation in episode.violations}) > 5


def test_a_budget_ends_an_episode_whose_missing_answer_is_named_at_the_end_alone(env):
    env.reset(seed=0)
    codes = [env.step("hm")[-1]["episode_violations"] for _ in range(2)]
    assert ["missing_answer" in code for code in codes] == [False, True]


def test_a_step_before_reset_is_refused(env):
    with pytest.raises(UsageError, match="call reset"):
        env.step(CALL)


@pytest.mark.parametrize("wrapper", [lambda env: env, EmissionChecker, lambda env: CharacterLimit(env, 9)])
@pytest.mark.parametrize(("action", "kind"), [(5, "an int"), (None, "None"), ([CALL], "a list"), (b"x", "a bytes")])
def test_an_action_that_is_no_text_is_refused_in_one_sentence_under_every_wrapper(env, wrapper, action, kind):
    wrapped = wrapper(env)
    wrapped.reset(seed=0)
    with pytest.raises(UsageError, match=f"the action is {kind}; it must be the text of one emission, a str"):
        wrapped.step(action)


@pytest.mark.parametrize(
    ("mode", "texts", "paid"),
    [
        ("answer", (PLAN + CALL, REVIEW + ANSWER), [0.0, 1.0]),
        # 0.25 for the plan; 0.5 + 0.75 + 1.0 when research, review and answer close together
        ("stagewise", (PLAN + CALL, CALL, REVIEW + ANSWER), [0.25, 0.0, 2.25]),
        # A missing plan is paid at the end.
        ("stagewise", (CALL, ANSWER), [0.0, 2.5]),
    ],
)
def test_each_stage_is_paid_on_the_step_that_closes_it(queries, toolbox, mode, texts, paid):
    env = DeepResearchEnv(queries=queries, toolbox=toolbox, reward=mode, scorer=ScoreEach(all_scored))
    env.reset(seed=0)
    steps = [env.step(text) for text in texts]
    assert [step[1] for step in steps] == paid
    assert steps[-1][4]["score_answer"] == 1.0
    env.close()


def test_an_absent_score_differs_from_zero(queries, toolbox):
    env = DeepResearchEnv(queries=queries, toolbox=toolbox, reward="answer", scorer=ScoreEach(answer_unscored))
    env.reset(seed=0)
    _, reward, *_, info = env.step(ANSWER)
    assert reward == 0.0
    assert info["score_answer"] is None
    assert info["unscored_answer"] == "judge_failed"
    env.close()


def test_a_reward_mode_needs_a_scorer_and_a_name_that_exists(queries, toolbox):
    with pytest.raises(ConfigError, match="needs a scorer"):
        DeepResearchEnv(queries=queries, toolbox=toolbox, reward="answer")
    with pytest.raises(ConfigError, match="one of none, answer, stagewise"):
        DeepResearchEnv(queries=queries, toolbox=toolbox, reward="dense")


def test_a_tool_that_raises_is_an_error_observation(queries):
    class Broken:
        names = ("google_search",)

        async def call(self, call):
            raise ConnectionResetError("peer went away")

    env = DeepResearchEnv(queries=queries, toolbox=Broken())
    env.reset(seed=0)
    observation, *_, info = env.step(CALL)
    assert "peer went away" in observation
    assert info["tool_status"] == "error"
    env.close()


def test_the_ansi_rendering_has_a_heading_for_each_stage_and_no_control_characters_of_a_page(queries, toolbox):
    env = DeepResearchEnv(queries=queries, toolbox=toolbox, render_mode="ansi")
    env.reset(seed=0)
    env.step(PLAN + CALL)
    env.step("<think>\x1b[2J</think>" + REVIEW + ANSWER)
    rendered = env.render()
    assert all(f"── {stage}" in rendered for stage in ("PLAN", "RESEARCH", "REVIEW", "ANSWER"))
    assert "\x1b[2J" not in rendered
    env.render_mode = None
    assert env.render() is None
    env.close()


def test_the_ansi_rendering_shows_the_question_the_pages_and_every_word_of_the_policy(toolbox):
    env = DeepResearchEnv(queries=[Query(question="How wide is Tall Fox?")], toolbox=toolbox, render_mode="ansi")
    env.reset(seed=0)
    env.step(PLAN + CALL)
    env.step("<think>first word" + " of many" * 30 + " last word</think>" + REVIEW + ANSWER)
    rendered = " ".join(re.sub(r"\x1b\[[0-9;]*m|[│─]", " ", env.render()).split())
    env.close()

    assert rendered.startswith("Question: How wide is Tall Fox?")
    assert "The width of Tall Fox is 60 m." in rendered
    assert "first word" + " of many" * 30 + " last word" in rendered
    # Each block of the plan begins a line of its own, and nothing between two stages is lost.
    assert "<deep_analysis>a</deep_analysis>" in rendered
    assert rendered.endswith("<answer>60 m</answer> answered")


def test_a_question_is_found_by_its_key_and_another_key_is_refused(queries, toolbox):
    spec = make_env_spec(queries=queries, toolbox=toolbox)
    assert spec.query(queries[3].key) is queries[3]
    with pytest.raises(UsageError, match="the query key is 'absent'; it names none of the 5 questions"):
        spec.query("absent")


def test_a_closed_environment_says_so(queries, toolbox):
    env = DeepResearchEnv(queries=queries, toolbox=toolbox)
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(UsageError, match="is closed"):
        env.step(CALL)


LONG = EpisodeLimits(max_calls=50, max_turns=60, max_tokens=100_000)
FOLDED = ContextLimits(fold_at=400, fold_to=300, keep=1)


def test_info_has_the_view_that_the_policy_reads_next(toolbox, queries):
    env = DeepResearchEnv(queries=queries, toolbox=toolbox, limits=LONG, context=FOLDED)
    prompt, info = env.reset(seed=0)
    assert info["view"] == [{"role": "user", "content": prompt}]
    for number in range(12):
        before = info["folds"]
        observation, *_, info = env.step(f"<state_evaluation>{number}</state_evaluation>{CALL}")
        assert info["view"][-1] == {"role": "user", "content": observation}
        assert info["view"] == env.episode.view.messages
        assert info["folds"] - before in (0, 1)
    assert info["folds"] > 1
    assert len(info["view"]) < 24


def test_without_a_context_info_has_the_keys_that_it_always_had(toolbox, queries):
    env = DeepResearchEnv(queries=queries, toolbox=toolbox)
    _, info = env.reset(seed=0)
    assert list(info) == ["query_key", "answer_format"]
    *_, info = env.step(CALL)
    assert "view" not in info
    assert "folds" not in info


def test_a_context_that_is_none_and_a_prompt_without_room_are_refused(toolbox, queries):
    with pytest.raises(UsageError, match="context is a dict; it must be ContextLimits"):
        DeepResearchEnv(context={"fold_at": 400})
    env = DeepResearchEnv(queries=queries, toolbox=toolbox, context=FOLDED, prompt=lambda query: "word " * 1_000)
    with pytest.raises(ConfigError, match=r"the prompt has 1250 tokens and context\.fold_to is 300"):
        env.reset(seed=0)
