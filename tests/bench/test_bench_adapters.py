"""Episodes through the adapters that step, against the bare crank and against environments as each library's own are.

In the lanes where the libraries are: make bench-adapters. The almanac's real tools; what the judge costs is left out.
"""

import pytest

from rubricem_env.adapters.session import EpisodeSession
from rubricem_env.env.episode import Episode
from rubricem_env.env.spec import make_env_spec
from rubricem_env.env.step import advance
from rubricem_env.world.offline import shipped_toolbox
from tests.bench.adapter_attempts import ATTEMPTS_MADE, QUERY, search

TASKS = "asynchronous: four episodes"
THREADS = "blocking: four episodes, a thread's loop asked for each turn"


async def play_bare():
    for turns in ATTEMPTS_MADE:
        episode = Episode(QUERY)
        for turn in turns:
            await advance(episode, shipped_toolbox(), turn)
        assert episode.is_over


async def play_sessions():
    env_spec = make_env_spec()
    for turns in ATTEMPTS_MADE:
        session = EpisodeSession(env_spec, QUERY)
        for turn in turns:
            await session.step(turn)
        assert session.is_over


def measure(benchmark, play):
    benchmark.pedantic(play, rounds=100, warmup_rounds=10)


@pytest.mark.benchmark(group=TASKS)
@pytest.mark.parametrize("play", [play_bare, play_sessions], ids=["bare", "session"])
def test_bench_asynchronous(benchmark, play, loop):
    measure(benchmark, lambda: loop.run(play()))


@pytest.mark.benchmark(group=TASKS)
def test_bench_openenv_environment(benchmark, loop):
    adapter = pytest.importorskip("rubricem_env.adapters.openenv", reason="needs OpenEnv", exc_type=ValueError)
    from tests.bench.openenv_overhead import in_process

    env_spec = make_env_spec()
    play = in_process(lambda: adapter.ResearchEnvironment(env_spec), adapter.ResearchAction)
    measure(benchmark, lambda: loop.run(play()))


@pytest.mark.benchmark(group=TASKS)
def test_bench_openenv_bare_environment(benchmark, loop):
    """An environment of OpenEnv's own kind over the bare crank, whose observations say the same."""
    pytest.importorskip("openenv.core.env_server.interfaces", reason="needs OpenEnv")
    from tests.bench.openenv_overhead import MinimalEnvironment, Turn, in_process

    play = in_process(MinimalEnvironment, Turn)
    measure(benchmark, lambda: loop.run(play()))


@pytest.mark.benchmark(group=THREADS)
def test_bench_bare_from_a_thread(benchmark, loop):
    def play():
        for turns in ATTEMPTS_MADE:
            episode = Episode(QUERY)
            for turn in turns:
                loop.run(advance(episode, shipped_toolbox(), turn))
            assert episode.is_over

    measure(benchmark, play)


@pytest.mark.benchmark(group=THREADS)
def test_bench_skyrl(benchmark):
    adapter = pytest.importorskip("rubricem_env.adapters.skyrl", reason="needs SkyRL-Gym", exc_type=ValueError)
    kind = type("Env", (adapter.ResearchTextEnv,), {"research": make_env_spec()})

    def play():
        for turns in ATTEMPTS_MADE:
            env = kind({}, {"query_key": QUERY.key})
            env.init([])
            for turn in turns:
                output = env.step(turn)
            assert output["done"]

    measure(benchmark, play)


@pytest.mark.benchmark(group=THREADS)
def test_bench_skyrl_idiomatic_search_environment(benchmark, loop):
    """The same searches in an environment as SkyRL-Gym's own are written."""
    gym = pytest.importorskip("skyrl_gym.envs.base_text_env", reason="needs SkyRL-Gym")

    class SearchEnv(gym.BaseTextEnv):
        def step(self, action):
            text = loop.run(search(action))
            observations = [] if text is None else [{"role": "user", "content": text}]
            return gym.BaseTextEnvStepOutput(observations=observations, reward=0.0, done=text is None, metadata={})

    def play():
        for turns in ATTEMPTS_MADE:
            env = SearchEnv()
            for turn in turns:
                output = env.step(turn)
            assert output["done"]

    measure(benchmark, play)


@pytest.mark.benchmark(group=THREADS)
def test_bench_gem(benchmark):
    adapter = pytest.importorskip("rubricem_env.adapters.gem", reason="needs gem", exc_type=ValueError)
    env = adapter.ResearchGemEnv(queries=[QUERY])

    def play():
        for turns in ATTEMPTS_MADE:
            env.reset(seed=0)
            for turn in turns:
                outcome = env.step(turn)
            assert outcome[2]

    measure(benchmark, play)
    env.close()


@pytest.mark.benchmark(group=THREADS)
def test_bench_gem_bare_environment(benchmark, loop):
    """Gem's own shape over the bare crank: its seeding, and five values for each turn."""
    gem = pytest.importorskip("gem", reason="needs gem")

    class BareEnv(gem.Env):
        def reset(self, seed=None):
            super().reset(seed)
            self.episode = Episode(QUERY)
            return QUERY.question, {}

        def step(self, action):
            reply = loop.run(advance(self.episode, shipped_toolbox(), action))
            return reply.observation, 0.0, self.episode.is_over, False, {}

    env = BareEnv()

    def play():
        for turns in ATTEMPTS_MADE:
            env.reset(seed=0)
            for turn in turns:
                outcome = env.step(turn)
            assert outcome[2]

    measure(benchmark, play)
