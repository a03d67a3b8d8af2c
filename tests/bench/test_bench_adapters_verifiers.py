"""Episodes in verifiers through its own machinery, against the same turns without it: make bench-adapters.

A real server on this machine answers with turns that were written beforehand.
"""

from pathlib import Path

import pytest

pytest.importorskip("verifiers", reason="needs verifiers")

from openai import AsyncOpenAI
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.envs.single_agent.env import SingleAgentEnvConfig
from verifiers.v1.types import SamplingConfig
from verifiers.v1.utils.loaders import load_environment

from rubricem_env.env.episode import Continue, Episode
from rubricem_env.env.step import advance
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelServer
from rubricem_env.world.offline import shipped_toolbox
from tests.bench.adapter_attempts import ATTEMPTS_MADE, QUERY

PLUGINS = Path(__file__).with_name("plugins")


class Writer:
    """Answers with the turns of one attempt after the other; a conversation is as long as what was said in it."""

    def __init__(self):
        self.place = 0

    def __call__(self, asked):
        said = sum(message["role"] == "assistant" for message in asked.body["messages"])
        return ATTEMPTS_MADE[self.place][said]


@pytest.fixture
def writer():
    return Writer()


@pytest.fixture
def url(writer):
    with serve_loopback(ModelServer(writer)) as address:
        yield f"{address}/v1"


def measure(benchmark, play):
    benchmark.pedantic(play, rounds=15, warmup_rounds=2)


@pytest.mark.benchmark(group="verifiers: four episodes, a model server asked for each turn")
def test_bench_same_server_without_verifiers(benchmark, loop, writer, url):
    async def play():
        for writer.place in range(len(ATTEMPTS_MADE)):
            episode = Episode(QUERY)
            reply, messages = Continue(QUERY.question), []
            async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
                while isinstance(reply, Continue):
                    messages.append({"role": "user", "content": reply.observation})
                    answer = await client.chat.completions.create(model="writer", messages=messages)
                    text = answer.choices[0].message.content
                    messages.append({"role": "assistant", "content": text})
                    reply = await advance(episode, shipped_toolbox(), text)

    measure(benchmark, lambda: loop.run(play()))


@pytest.mark.benchmark(group="verifiers: four episodes, a model server asked for each turn")
@pytest.mark.parametrize("plugin", ["idiomatic-search", "rubricem-search"])
def test_bench_verifiers(benchmark, plugin, loop, writer, url, monkeypatch):
    monkeypatch.syspath_prepend(str(PLUGINS))
    monkeypatch.setenv("WRITER_KEY", "none")
    agent = {"harness": {"id": plugin}, "runtime": {"type": "subprocess"}}
    env = load_environment(SingleAgentEnvConfig(taskset={"id": plugin}, agent=agent))
    client = EvalClientConfig(base_url=url, api_key_var="WRITER_KEY")
    context = ModelContext(client=client, model="writer", sampling=SamplingConfig())
    (task,) = env.taskset.load()
    serving = env.serving()
    loop.run(serving.__aenter__())

    async def play():
        for writer.place in range(len(ATTEMPTS_MADE)):
            episode = await env.run_episode(task, context)
            assert episode.ok, episode.errors or episode.traces[0].errors

    measure(benchmark, lambda: loop.run(play()))
    loop.run(serving.__aexit__(None, None, None))
