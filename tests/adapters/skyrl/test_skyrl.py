"""SkyRL-Gym's own registry, interface and metrics."""

import importlib
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("skyrl_gym", reason="SkyRL-Gym is not installed; run make adapter-skyrl")

import skyrl_gym
from skyrl_gym.envs.registration import deregister
from skyrl_gym.metrics import aggregate_for_environment

from docs.adapters.tutor import tutored_query
from rubricem_env.adapters.session import offline_env_spec
from rubricem_env.adapters.skyrl import ResearchTextEnv
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.rewards import GatheringScorer
from rubricem_env.env.spec import make_env_spec
from tests.adapters import snippets
from tests.adapters.golden_group import GOLDEN, SIZE, assert_golden_scores, group_scorer, tutor
from tests.letters import BRIEF, LETTER
from tests.scaffolds import WRITING

KEY = tutored_query().key
STAGES = ("plan", "research", "review", "answer")


@pytest.fixture
def make_env():
    """Registers a class for a setup, and makes its environments."""

    def register(**settings):
        kind = type("Env", (ResearchTextEnv,), {"research": make_env_spec(**settings)})
        skyrl_gym.register(id="test", entry_point=kind)
        return lambda: skyrl_gym.make("test", env_config={}, extras={"query_key": KEY})

    yield register
    deregister("test")


def play(env, place):
    write = tutor(place)
    messages, _ = env.init([{"role": "user", "content": tutored_query().question}])
    outputs = [env.step(write(messages[-1]["content"]))]
    while not outputs[-1]["done"]:
        outputs.append(env.step(write(outputs[-1]["observations"][-1]["content"])))
    return env, outputs


def test_an_empty_prompt_gives_the_rules_and_the_question_and_a_row_with_a_prompt_keeps_its_own(make_env):
    env = make_env(system="Plan first.")()
    question = {"role": "user", "content": tutored_query().question}
    assert env.init([])[0] == [{"role": "system", "content": "Plan first."}, question]
    assert env.init([question])[0] == [question]


def test_a_group_in_a_pool_of_threads_gets_the_golden_scores(make_env):
    make = make_env(reward="answer", scorer=GatheringScorer(group_scorer(), SIZE, patience=30))
    with ThreadPoolExecutor(SIZE) as pool:
        played = list(pool.map(lambda place: play(make(), place), range(SIZE)))
    last = [outputs[-1] for _, outputs in played]
    assert_golden_scores([[output["metadata"][f"score_{stage}"] for stage in STAGES] for output in last])
    assert [output["reward"] for output in last] == pytest.approx([row[3] for row in GOLDEN["scores"]])
    # The first attempt plans in turn 1, ends its research in turn 3, reviews and answers in turn 4.
    assert last[0]["metadata"]["turn_rewards"] == [1.0, None, 1.0, 2.0]
    metrics = aggregate_for_environment("test", [env.get_metrics() for env, _ in played])
    assert metrics["score_plan"] == pytest.approx(0.75)
    assert metrics["answered"] == 1.0


def test_a_letter_is_paid_in_the_stages_of_writing():
    class Letters(ResearchTextEnv):
        research = offline_env_spec(queries=[BRIEF], reward="stagewise", scaffold="writing")

    env = Letters(extras={"query_key": BRIEF.key})
    env.init([])
    output = env.step(LETTER)
    metrics = env.get_metrics()
    scores = [value for name, value in metrics.items() if name.startswith("score_")]
    assert output["done"]
    assert output["reward"] == pytest.approx(sum(scores))
    assert {name for name in metrics if name.startswith("score_")} <= {f"score_{s}" for s in WRITING.scaffold.names}
    assert output["metadata"]["turn_rewards"] == [pytest.approx(sum(scores))]
    env.close()


def test_the_plan_is_paid_in_the_turn_that_closes_it(make_env):
    make = make_env(reward="stagewise", scorer=group_scorer())
    _, outputs = play(make(), 0)
    rewards = [output["reward"] for output in outputs]
    # Alone there is no contrast and no rubric but the question's own, which are the answer's.
    assert rewards == [0.0] * (len(outputs) - 1) + [pytest.approx(1.0)]
    assert outputs[-1]["metadata"]["unscored_plan"] == "no_rubric"


def test_a_step_returns_messages_for_the_trainer_to_append_and_nothing_to_tokenise_again(make_env):
    env = make_env()()
    output = env.step(tutor(0)(tutored_query().question))
    (message,) = output["observations"]
    assert message["role"] == "user"
    assert "<tool_output" in message["content"]
    assert "postprocessed_action" not in output


def test_a_policy_that_never_ends_is_ended_by_the_limits(make_env):
    env = make_env()()
    outputs = [env.step("and on")]
    while not outputs[-1]["done"]:
        outputs.append(env.step("and on"))
    assert outputs[-1]["metadata"]["ending"] == "stalled"
    assert env.get_metrics()["answered"] == 0.0


def test_a_closed_environment_is_not_stepped_on(make_env):
    env = make_env()()
    env.close()
    with pytest.raises(UsageError, match="the episode is over"):
        env.step("late")


def test_a_row_without_a_query_key_is_refused(make_env):
    make_env()
    with pytest.raises(UsageError, match="has no query_key"):
        skyrl_gym.make("test", env_config={}, extras={})


def test_the_three_lines_of_the_docs_play_a_scored_group(tmp_path, monkeypatch):
    lines = snippets.snippet("SkyRL-Gym")
    assert len(snippets.statements(lines)) <= 3
    (tmp_path / "my_module.py").write_text(lines, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("my_module")
    with ThreadPoolExecutor(SIZE) as pool:
        envs = [skyrl_gym.make("rubricem", env_config={}, extras={"query_key": KEY}) for _ in range(SIZE)]
        played = list(pool.map(play, envs, range(SIZE)))
    last = [outputs[-1] for _, outputs in played]
    assert_golden_scores([[output["metadata"][f"score_{stage}"] for stage in STAGES] for output in last])
    deregister("rubricem")


def test_the_whole_program_of_the_page_runs_alone_in_an_empty_folder(tmp_path):
    snippets.run_program("SkyRL-Gym", tmp_path)


def test_a_context_is_refused_since_skyrl_appends_to_a_conversation_of_its_own(make_env):
    with pytest.raises(ConfigError, match=r"context.fold_at is 4000, and SkyRL appends to a conversation of its own"):
        make_env(context=ContextLimits(fold_at=4_000, fold_to=2_000))()
