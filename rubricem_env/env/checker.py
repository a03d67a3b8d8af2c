"""Looks over a user's shoulder: warns once of each habit that would spoil a run, and says what to do instead."""

import warnings
from typing import Any

import gymnasium

from rubricem_env.env.research_env import DeepResearchEnv
from rubricem_env.env.wrappers import unwrapped_research_env
from rubricem_env.scaffold.grammar import ANSWER, CALL_TOOL, TOOL_OUTPUT

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
        "the emission contains {token}: decode with skip_special_tokens=True, or cut the text at the end-of-turn token."
    ),
}
_SPECIAL_TOKENS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>")


class EmissionChecker(gymnasium.Wrapper[str, str, str, str]):
    """Passes everything through; the warnings are `EmissionWarning`s, one of each kind a lifetime.

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
        self._look_at(action)
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward), terminated, truncated, info

    def _look_at(self, action: str) -> None:
        for tag in (CALL_TOOL, ANSWER):
            if action.rfind(f"<{tag}") > action.rfind(f"</{tag}>"):
                self._warn("stop_stripped", tag=tag)
        if f"<{TOOL_OUTPUT}>" in action:
            self._warn("observation_echoed")
        if self._prompt and action.startswith(self._prompt):
            self._warn("prompt_echoed")
        for token in _SPECIAL_TOKENS:
            if token in action:
                self._warn("special_tokens", token=token)

    def _warn(self, habit: str, **values: str) -> None:
        if habit not in self._warned:
            self._warned.add(habit)
            warnings.warn(
                f"turn {len(self._inner.episode.turns) + 1}: {_FIXES[habit].format(**values)}",
                EmissionWarning,
                stacklevel=3,
            )


def make_checked_env(**arguments: Any) -> EmissionChecker:
    """What `gymnasium.make` calls: the environment with the checker around it.

    An additional wrapper in the registration would do the same and forbid `make_vec`.
    """
    return EmissionChecker(DeepResearchEnv(**arguments))


class EmissionWarning(UserWarning):
    """Something about how emissions reach the environment is probably not meant."""
