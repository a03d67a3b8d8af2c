"""An environment with gem's interface. Each copy from `spawn` shares questions and tools.

    gem.register("rubricem:almanac", "rubricem_env.adapters.gem:ResearchGemEnv")
    env = gem.make("rubricem:almanac", reward="answer", scorer=...)

The stage vector is in the last `info`; gem's trainers read the scalar.
"""

from typing import Any

from rubricem_env.adapters.session import require_tested
from rubricem_env.domain.trajectory import Trajectory
from rubricem_env.env.research_env import DeepResearchEnv

require_tested("gem-llm", ">=0.1,<0.2", extra="gem")

from gem import Env  # type: ignore[import-not-found,unused-ignore]  # noqa: E402 - after its version


class ResearchGemEnv(Env):  # type: ignore[misc,unused-ignore]  # gem is absent where types are checked
    """One episode at a time; `settings` are those of `DeepResearchEnv`. In threads, each environment has its own loop.

    Tools that keep connections open, such as MCP, belong to one event loop: give each environment its own toolbox.
    """

    def __init__(self, *, seed: int | None = None, **settings: Any) -> None:
        super().__init__()
        self._seed = seed
        self._settings = settings
        self._env = DeepResearchEnv(**settings)

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Begin on a drawn question; the first time with the seed of `make_vec`, unless one is given."""
        chosen = self._seed if seed is None else seed
        self._seed = None
        return self._env.reset(seed=chosen)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take a turn, like `DeepResearchEnv.step`."""
        return self._env.step(action)

    @property
    def trajectory(self) -> Trajectory:
        """The record of the episode so far."""
        return self._env.trajectory

    def spawn(self, same_state: bool = False, **kwargs: Any) -> "ResearchGemEnv":
        """Another environment with the same settings; with `same_state` it replays the policy's turns."""
        copy = ResearchGemEnv(**{**self._settings, **kwargs})
        if same_state:
            copy._env.reset(options={"query": self._env.episode.query})
            for turn in self._env.episode.turns:
                copy.step(turn.text)
        return copy

    def sample_random_action(self) -> str:
        """An answer, so that random play ends."""
        tag = self._env.env_spec.stage_set.scaffold.answer_tag
        return f"<{tag}>I do not know.</{tag}>"

    def close(self) -> None:
        """Stop the environment's thread."""
        self._env.close()
