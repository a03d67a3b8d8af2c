"""An OpenEnv server in a process of its own, and many clients."""

import asyncio
import signal
import subprocess
import sys

import pytest

pytest.importorskip("openenv", reason="OpenEnv is not installed; run make adapter-openenv")

import httpx
from openenv.core import GenericEnvClient

from docs.adapters.openenv_episodes import attempt, serve
from docs.adapters.openenv_server import TOKEN
from docs.adapters.prompt import SYSTEM, prompt_of
from docs.adapters.tutor import Tutor, tutored_query, tutored_questions
from rubricem_env.adapters.openenv import ResearchAction, ResearchClient, ResearchEnvironment, research_app
from rubricem_env.adapters.session import offline_env_spec
from rubricem_env.domain.errors import ConfigError
from rubricem_env.env.context import ContextLimits
from rubricem_env.env.episode import EpisodeLimits
from rubricem_env.env.spec import make_env_spec
from tests.adapters import snippets
from tests.adapters.golden_group import GOLDEN, SIZE, assert_golden_scores, tutor
from tests.letters import BRIEF, LETTER
from tests.scaffolds import WRITING

KEY = tutored_query().key
CLIENT_TO_KILL = """
import asyncio, sys
from docs.adapters.openenv_server import TOKEN
from docs.adapters.tutor import Tutor, tutored_query, tutored_questions
from rubricem_env.adapters.openenv import ResearchAction, ResearchClient

async def play():
    write = Tutor(tutored_questions()[tutored_query().question], 3)
    async with ResearchClient(sys.argv[1], token=TOKEN) as client:
        result = await client.reset(query_key=tutored_query().key)
        await client.step(ResearchAction(text=write(result.observation.text)))
        print("mid-episode", flush=True)
        await asyncio.sleep(600)

asyncio.run(play())
"""


async def play_on(client, result, write):
    while not result.done:
        result = await client.step(ResearchAction(text=write(result.observation.text)))


@pytest.fixture(scope="module")
def server():
    with serve(RUBRICEM_PATIENCE="6") as url:
        yield url


async def test_a_group_of_sessions_gets_the_golden_scores():
    with serve() as url:
        played = await asyncio.gather(*(attempt(url, tutor(place)) for place in range(SIZE)))
    assert_golden_scores([list(observation.stage_scores.values()) for observation in played])
    assert [observation.reward for observation in played] == pytest.approx([row[3] for row in GOLDEN["scores"]])


async def test_a_letter_has_the_scores_of_the_stages_of_writing():
    environment = ResearchEnvironment(offline_env_spec(queries=[BRIEF], scaffold="writing"))
    await environment.reset_async(query_key=BRIEF.key)
    observation = await environment.step_async(ResearchAction(text=LETTER))
    assert observation.done
    assert tuple(observation.stage_scores) == WRITING.scaffold.names
    assert observation.reward == observation.stage_scores["final"]


async def test_64_episodes_at_once_survive_the_death_of_one_of_their_clients(server):
    doomed = subprocess.Popen([sys.executable, "-c", CLIENT_TO_KILL, server], stdout=subprocess.PIPE, text=True)
    assert doomed.stdout.readline().strip() == "mid-episode"
    running = [asyncio.create_task(attempt(server, tutor(place))) for place in range(63)]
    await asyncio.sleep(0.05)
    doomed.send_signal(signal.SIGKILL)
    doomed.wait(timeout=10)
    doomed.stdout.close()
    played = await asyncio.wait_for(asyncio.gather(*running), 100)
    assert [observation.facts["ending"] for observation in played] == ["answered"] * 63
    assert all(set(observation.stage_scores) == {"plan", "research", "review", "answer"} for observation in played)
    # 63 is 15 groups of four and one of three, which was judged without the fourth.
    assert all(observation.reward is not None for observation in played)


async def test_a_receive_time_out_loses_the_session_and_never_answers_late(server):
    write = Tutor(tutored_questions()[tutored_query().question], 0)
    async with ResearchClient(server, token=TOKEN, timeout=3) as client:
        result = await client.reset(query_key=KEY)
        # The last step waits six seconds for siblings that never come.
        with pytest.raises(TimeoutError):
            await play_on(client, result, write)
        with pytest.raises(RuntimeError, match="this session has no episode"):
            await client.step(ResearchAction(text="<answer>late</answer>"))
        fresh = await client.reset(query_key=KEY)
        assert (fresh.done, fresh.observation.text) == (False, prompt_of(tutored_query()))


async def test_the_first_observation_has_the_rules_of_the_scaffold(server):
    async with ResearchClient(server, token=TOKEN) as client:
        result = await client.reset(query_key=KEY)
        assert result.observation.system == SYSTEM
        result = await client.step(ResearchAction(text="<think>A turn.</think>"))
        assert result.observation.system == ""


async def test_without_the_token_nobody_comes_in(server):
    with pytest.raises(ConnectionError):
        await ResearchClient(server, token="guess").reset(query_key=KEY)
    assert httpx.get(f"{server}/schema").status_code == 401
    assert httpx.get(f"{server}/schema", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert httpx.get(f"{server}/health").status_code == 200


async def test_an_untyped_client_is_told_of_a_field_that_is_not_there_and_of_a_key_that_is_unknown(server):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with GenericEnvClient(server, headers=headers) as client:
        with pytest.raises(RuntimeError, match="names none of the"):
            await client.reset(query_key="nothing")
        await client.reset(seed=3)
        with pytest.raises(RuntimeError, match="VALIDATION_ERROR"):
            await client.step({"text": "<answer>x</answer>", "emission": "y"})


async def test_the_same_seed_draws_the_same_question_and_the_state_names_it(server):
    async with ResearchClient(server, token=TOKEN) as client:
        first = await client.reset(seed=7, episode_id="seven")
        second = await client.reset(seed=7, episode_id="seven")
        assert first.observation.query_key == second.observation.query_key
        state = await client.state()
        assert (state.episode_id, state.query_key) == ("seven", first.observation.query_key)


async def test_a_policy_that_never_ends_is_ended_by_the_limits(server):
    async with ResearchClient(server, token=TOKEN) as client:
        result = await client.reset(query_key=KEY)
        while not result.done:
            result = await client.step(ResearchAction(text="and on"))
    assert result.observation.facts["ending"] == "stalled"
    assert result.observation.stage_scores == dict.fromkeys(("plan", "research", "review", "answer"), 0.0)


def test_an_empty_token_is_refused():
    with pytest.raises(ConfigError, match="would refuse everybody"):
        research_app(make_env_spec(), token="")


async def test_the_three_lines_of_the_docs_serve_a_scored_group(tmp_path):
    server, _, client = snippets.snippet("OpenEnv").partition("\n\n\n")
    assert len(snippets.statements(server)) <= 3
    (tmp_path / "my_module.py").write_text(server, encoding="utf-8")
    with serve("my_module:app", "--app-dir", str(tmp_path)) as url:
        names = snippets.run(client, url=url, key=KEY)
        played = await asyncio.gather(*(names["play"](tutor(place)) for place in range(SIZE)))
    assert_golden_scores([list(observation.stage_scores.values()) for observation in played])


def test_the_whole_program_of_the_page_runs_alone_in_an_empty_folder(tmp_path):
    snippets.run_program("OpenEnv", tmp_path)


async def test_observations_have_the_view_where_the_context_is_bounded():
    call = '<state_evaluation>s</state_evaluation><call_tool name="google_search">Tall Fox</call_tool>'
    limits = EpisodeLimits(max_calls=50, max_turns=60, max_tokens=100_000)
    folded = make_env_spec(limits=limits, context=ContextLimits(fold_at=900, fold_to=700, keep=1))
    for spec in (folded, make_env_spec(limits=limits)):
        environment = ResearchEnvironment(spec)
        observation = await environment.reset_async(query_key=KEY)
        for _ in range(8):
            observation = await environment.step_async(ResearchAction(text=call))
        if spec is folded:
            assert observation.view[-1] == {"role": "user", "content": observation.text}
            assert observation.facts["folds"] > 0
            assert "Folded: " in observation.view[2]["content"]
        else:
            assert "view" not in observation.model_dump()
        environment.close()
