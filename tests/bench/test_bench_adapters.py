"""Episodes through each adapter against the bare crank, in the lanes where the libraries are: make bench-adapters.

The shipped almanac, its real tools, four attempts of 16 turns in all; what the judge costs is left out.
"""

import asyncio
import re
from typing import NamedTuple

import pytest

from docs.adapters.tutor import ATTEMPTS, Tutor, tutored_query, tutored_questions
from rubricem_env.adapters.session import Session, make_setup
from rubricem_env.domain.tool import ToolCall
from rubricem_env.env.drive import advance
from rubricem_env.env.episode import Continue, Episode, Finished
from rubricem_env.env.loop import LoopThread
from rubricem_env.env.offline import shipped_toolbox

QUERY = tutored_query()
QUESTION = tutored_questions()[QUERY.question]
PLACES = range(len(ATTEMPTS))
_CALL = re.compile(r'<call_tool name="(\w+)"[^>]*>(.*?)</call_tool>', re.DOTALL)


class Recorded(NamedTuple):
    """An attempt's turns, written beforehand: the writer's time is not the adapters'."""

    turns: tuple[str, ...]


async def record(place):
    write, episode, turns = Tutor(QUESTION, place), Episode(QUERY), []
    reply = Continue(QUERY.question)
    while not isinstance(reply, Finished):
        turns.append(write(reply.observation))
        reply = await advance(episode, shipped_toolbox(), turns[-1])
    return Recorded(tuple(turns))


ATTEMPTS_MADE = [asyncio.run(record(place)) for place in PLACES]


async def play_bare():
    for attempt in ATTEMPTS_MADE:
        episode = Episode(QUERY)
        for turn in attempt.turns:
            await advance(episode, shipped_toolbox(), turn)
        assert episode.is_over


async def play_sessions():
    setup = make_setup()
    for attempt in ATTEMPTS_MADE:
        session = Session(setup, QUERY)
        for turn in attempt.turns:
            await session.step(turn)
        assert session.is_over


@pytest.fixture
def loop():
    thread = LoopThread()
    thread.run(asyncio.sleep(0))
    yield thread
    thread.close()


def measure(benchmark, play):
    benchmark.pedantic(play, rounds=60, warmup_rounds=5)


@pytest.mark.benchmark(group="asynchronous: four episodes")
@pytest.mark.parametrize("play", [play_bare, play_sessions], ids=["bare", "session"])
def test_bench_asynchronous(benchmark, play, loop):
    measure(benchmark, lambda: loop.run(play()))


@pytest.mark.benchmark(group="asynchronous: four episodes")
def test_bench_openenv_environment(benchmark, loop):
    adapter = pytest.importorskip("rubricem_env.adapters.openenv", reason="needs OpenEnv", exc_type=ValueError)
    setup = make_setup()

    async def play():
        env = adapter.ResearchEnvironment(setup)
        for attempt in ATTEMPTS_MADE:
            await env.reset_async(query_key=QUERY.key)
            for turn in attempt.turns:
                observation = await env.step_async(adapter.ResearchAction(text=turn))
            assert observation.done

    measure(benchmark, lambda: loop.run(play()))


@pytest.mark.benchmark(group="blocking: four episodes, a thread's loop asked for each turn")
def test_bench_bare_from_a_thread(benchmark, loop):
    def play():
        for attempt in ATTEMPTS_MADE:
            episode = Episode(QUERY)
            for turn in attempt.turns:
                loop.run(advance(episode, shipped_toolbox(), turn))
            assert episode.is_over

    measure(benchmark, play)


@pytest.mark.benchmark(group="blocking: four episodes, a thread's loop asked for each turn")
def test_bench_skyrl(benchmark):
    adapter = pytest.importorskip("rubricem_env.adapters.skyrl", reason="needs SkyRL-Gym", exc_type=ValueError)
    kind = type("Env", (adapter.ResearchTextEnv,), {"research": make_setup()})

    def play():
        for attempt in ATTEMPTS_MADE:
            env = kind({}, {"query_key": QUERY.key})
            env.init([])
            for turn in attempt.turns:
                output = env.step(turn)
            assert output["done"]

    measure(benchmark, play)


@pytest.mark.benchmark(group="blocking: four episodes, a thread's loop asked for each turn")
def test_bench_skyrl_idiomatic_search_environment(benchmark, loop):
    """The same searches in an environment as SkyRL-Gym's own are written: a pattern, a call, a message."""
    gym = pytest.importorskip("skyrl_gym.envs.base_text_env", reason="needs SkyRL-Gym")

    class SearchEnv(gym.BaseTextEnv):
        def step(self, action):
            found = _CALL.search(action)
            if found is None:
                return gym.BaseTextEnvStepOutput(observations=[], reward=0.0, done=True, metadata={})
            result = loop.run(shipped_toolbox().call(ToolCall(name=found[1], query=found[2])))
            text = "\n".join(snippet.text for snippet in result.snippets)
            message = {"role": "user", "content": f"<tool_output>{text}</tool_output>"}
            return gym.BaseTextEnvStepOutput(observations=[message], reward=0.0, done=False, metadata={})

    def play():
        for attempt in ATTEMPTS_MADE:
            env = SearchEnv()
            for turn in attempt.turns:
                output = env.step(turn)
            assert output["done"]

    measure(benchmark, play)


@pytest.mark.benchmark(group="blocking: four episodes, a thread's loop asked for each turn")
def test_bench_gem(benchmark):
    adapter = pytest.importorskip("rubricem_env.adapters.gem", reason="needs gem", exc_type=ValueError)
    env = adapter.ResearchGemEnv(queries=[QUERY])

    def play():
        for attempt in ATTEMPTS_MADE:
            env.reset(seed=0)
            for turn in attempt.turns:
                outcome = env.step(turn)
            assert outcome[2]

    measure(benchmark, play)
    env.close()
