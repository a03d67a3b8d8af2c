"""Wrappers of one job each: a tighter limit, a record on disk."""

import os
from pathlib import Path
from typing import Any

import gymnasium

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory_json import dump_trajectory
from rubricem_env.env.research_env import DeepResearchEnv


def unwrapped_research_env(env: gymnasium.Env[str, str], wrapper: str) -> DeepResearchEnv:
    """The environment under all wrappers.

    Raises:
        UsageError: it is some other environment.
    """
    inner = env.unwrapped
    if not isinstance(inner, DeepResearchEnv):
        raise UsageError(f"{wrapper} wraps a DeepResearchEnv; this is a {type(inner).__name__}.")
    return inner


class CharacterLimit(gymnasium.Wrapper[str, str, str, str]):
    """Truncates the episode once the policy has written more than `max_characters` in all."""

    def __init__(self, env: gymnasium.Env[str, str], max_characters: int) -> None:
        super().__init__(env)
        if max_characters < 1:
            raise UsageError(f"max_characters is {max_characters}; it is at least 1.")
        self.max_characters = max_characters
        self._written = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._written = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._written += len(action)
        over = self._written > self.max_characters and not terminated
        return observation, float(reward), terminated, truncated or over, info


class RecordTrajectories(gymnasium.Wrapper[str, str, str, str]):
    """Appends each episode to a JSONL file when it is over, and an unfinished one when the next begins or at close."""

    def __init__(self, env: gymnasium.Env[str, str], path: Path | str) -> None:
        super().__init__(env)
        self.path = Path(path)
        self._inner = unwrapped_research_env(env, "RecordTrajectories")
        self._is_open = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._record()
        outcome = self.env.reset(seed=seed, options=options)
        self._is_open = True
        return outcome

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            self._record()
        return observation, float(reward), terminated, truncated, info

    def close(self) -> None:
        self._record()
        super().close()

    def _record(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        line = dump_trajectory(self._inner.trajectory) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())  # a killed run keeps every episode that was over
