"""Wrappers: a limit in characters, a record on disk, and a checker that warns of emissions that would spoil a run."""

import os
import warnings
from pathlib import Path
from typing import Any

import gymnasium

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.trajectory import Ending, dump_trajectory
from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.scaffold.grammar import TOOL_OUTPUT, grammar_of


def unwrapped_research_env(env: gymnasium.Env[str, str], wrapper: str) -> DeepResearchEnv:
    """The environment under all wrappers.

    Raises:
        UsageError: it is another environment.
    """
    inner = env.unwrapped
    if not isinstance(inner, DeepResearchEnv):
        raise UsageError(f"{wrapper} wraps a DeepResearchEnv; this is a {type(inner).__name__}.")
    return inner


class CharacterLimit(gymnasium.Wrapper[str, str, str, str]):
    """Truncates the episode once the policy has written more than `max_characters` in all.

    What was written so far is scored.
    """

    def __init__(self, env: gymnasium.Env[str, str], max_characters: int) -> None:
        super().__init__(env)
        if isinstance(max_characters, bool) or not isinstance(max_characters, int) or max_characters < 1:
            raise UsageError(
                f"max_characters is {max_characters!r}; it must be a whole number, at least 1. Write "
                "CharacterLimit(env, 20_000)."
            )
        self._inner = unwrapped_research_env(env, "CharacterLimit")
        self.max_characters = max_characters
        self._written = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._written = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._written += len(action)
        if terminated or truncated or self._written <= self.max_characters:
            return observation, float(reward), terminated, truncated, info
        paid, info = self._inner.truncate(Ending.TOKEN_BUDGET)
        return observation, float(reward) + paid, False, True, info


class RecordTrajectories(gymnasium.Wrapper[str, str, str, str]):
    """Appends each episode to a JSONL file when it is over, and an unfinished one when the next begins or at close."""

    def __init__(self, env: gymnasium.Env[str, str], path: Path | str) -> None:
        super().__init__(env)
        self.path = Path(path)
        self._inner = unwrapped_research_env(env, "RecordTrajectories")
        self._append("")
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
        self._append(dump_trajectory(self._inner.trajectory) + "\n")

    def _append(self, line: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())  # a killed run keeps every finished episode
        except OSError as cause:
            raise UsageError(
                f"RecordTrajectories cannot write to {self.path}: {cause.strerror}. Give a file in a folder that you "
                "may write to, such as runs/episodes.jsonl."
            ) from cause


_FIXES = {
    "stop_stripped": (
        "the emission opens <{tag}> and lacks its closing tag: the stop string was probably stripped. Keep it in the "
        "text (include_stop_str_in_output=True), or append it before step()."
    ),
    "observation_echoed": (
        f"the emission contains <{TOOL_OUTPUT}>: pass only what the policy has just written to step(), "
        "not the conversation so far."
    ),
    "prompt_echoed": (
        "the emission begins with the prompt: pass only the newly generated text to step(), not prompt + completion."
    ),
    "special_tokens": (
        "the emission contains {token}: decode with skip_special_tokens=True, or truncate the text at the end-of-turn "
        "token."
    ),
    "tool_renamed": "the emission calls {written!r}, which was read as {name}: write the tool's own name.",
}
_SPECIAL_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>")


class EmissionChecker(gymnasium.Wrapper[str, str, str, str]):
    """Passes everything through and warns with an `EmissionWarning`, once for each kind of mistake.

    `gymnasium.make` puts it around every environment of this package.
    """

    def __init__(self, env: gymnasium.Env[str, str]) -> None:
        super().__init__(env)
        self._inner: DeepResearchEnv = unwrapped_research_env(env, "EmissionChecker")
        self._prompt = ""
        self._warned: set[str] = set()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._prompt = observation
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._check(action)
        turn = len(self._inner.episode.turns) + 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        shown = self._inner.trajectory.segments[-1].observation
        if shown is not None and shown.call is not None and shown.call.written_name:
            self._warn("tool_renamed", turn, written=shown.call.written_name[:60], name=shown.call.name)
        return observation, float(reward), terminated, truncated, info

    def _check(self, action: object) -> None:
        if not isinstance(action, str):
            return  # the environment refuses it
        turn = len(self._inner.episode.turns) + 1
        for tag in grammar_of(self._inner.env_spec.stage_set.scaffold).actions:
            if action.rfind(f"<{tag}") > action.rfind(f"</{tag}>"):
                self._warn("stop_stripped", turn, tag=tag)
        if f"<{TOOL_OUTPUT}>" in action:
            self._warn("observation_echoed", turn)
        if self._prompt and action.startswith(self._prompt):
            self._warn("prompt_echoed", turn)
        for token in _SPECIAL_TOKENS:
            if token in action:
                self._warn("special_tokens", turn, token=token)

    def _warn(self, mistake: str, turn: int, **values: str) -> None:
        if mistake not in self._warned:
            self._warned.add(mistake)
            warnings.warn(
                f"turn {turn}: {_FIXES[mistake].format(**values)}",
                EmissionWarning,
                stacklevel=3,
            )


class EmissionWarning(UserWarning):
    """The way emissions reach the environment is probably a mistake."""
