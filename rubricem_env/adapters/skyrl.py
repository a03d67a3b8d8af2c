"""SkyRL-Gym: an episode as a BaseTextEnv, with a reward for every turn.

    class MyEnv(ResearchTextEnv):                          # my_module.py
        research = make_env_spec(reward="stagewise", scorer=...)
    skyrl_gym.register(id="rubricem", entry_point="my_module:MyEnv")

The string lets every worker of a trainer find the class; each calls it from a pool of threads.
"""

from typing import Any, ClassVar

from rubricem_env.adapters.session import EpisodeSession, require_tested, turn_rewards
from rubricem_env.concurrency import LoopThread
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.env.spec import EnvSpec
from rubricem_env.env.step import StepOutcome

require_tested("skyrl-gym", ">=0.4,<0.5", extra="skyrl")

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

Messages = list[dict[str, str]]


class ResearchTextEnv(BaseTextEnv):  # type: ignore[misc,unused-ignore]  # SkyRL-Gym is absent where types are checked
    """One episode; subclass it and set `research`. The extra fields of a data row name its question by `query_key`."""

    research: ClassVar[EnvSpec]
    _loop: ClassVar[LoopThread]

    def __init_subclass__(cls, **keywords: Any) -> None:
        """All episodes of a class share one event loop in a thread, and with it the tools."""
        super().__init_subclass__(**keywords)
        cls._loop = LoopThread()

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        del env_config  # The spec has every setting.
        key = (extras or {}).get("query_key")
        if key is None:
            raise UsageError("the data row has no query_key; add the key of its question to the row's extra fields.")
        if self.research.context.fold_at is not None:
            raise ConfigError(
                f"context.fold_at is {self.research.context.fold_at}, and SkyRL appends to a conversation of its own, "
                "which no environment can fold. Leave context out, or train long episodes with rubricem's trainers."
            )
        self.max_turns = self.research.limits.max_turns
        self._query = self.research.query(key)
        self._session = EpisodeSession(self.research, self._query)
        self._last: StepOutcome | None = None

    def init(self, prompt: Messages) -> tuple[Messages, dict[str, Any]]:
        """The data set's prompt; if it is empty, the spec's system message, if it has one, and the question."""
        system = [{"role": "system", "content": self.research.system}] if self.research.system else []
        messages = prompt or [*system, {"role": "user", "content": self._session.prompt}]
        return messages, {"query_key": self._query.key}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take a turn. `metadata` has the facts, and at the end the stage vector and the rewards by turn.

        `postprocessed_action` is never set: it would make the trainer tokenise the turn again.
        """
        step = self._last = self._loop.run(self._session.step(action))
        self.turns += 1
        metadata = dict(step.info)
        if step.is_over and self._session.judgement is not None:
            metadata["turn_rewards"] = turn_rewards(self._session.trajectory, self._session.judgement)
        observations = [] if step.is_over else [{"role": "user", "content": step.observation}]
        return BaseTextEnvStepOutput(
            observations=observations, reward=step.reward, done=step.is_over, metadata=metadata
        )

    def get_metrics(self) -> dict[str, Any]:
        """The available stage scores, and facts of the episode.

        Raises:
            UsageError: the episode has not begun.
        """
        if self._last is None:
            raise UsageError("the episode has no turn yet; step it before asking for metrics.")
        info = self._last.info
        names = [f"score_{stage}" for stage in self.research.stage_set.scaffold.names]
        scores = {name: info[name] for name in names if info.get(name) is not None}
        answered = float(self._last.terminated)
        return {**scores, "answered": answered, "calls_used": info["calls_used"], "turns": self.turns}

    def close(self) -> None:
        """Abandon an unfinished episode. The event loop belongs to the class and keeps running."""
        self._session.abandon()
