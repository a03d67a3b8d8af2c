"""The judge prompts of a benchmark: read once, filled often, and known by one hash."""

import hashlib
from collections.abc import Mapping

from rubricem_agent.prompting.library import Prompt, fill, read_prompt


class JudgePrompts:
    """Prompt files by name."""

    def __init__(self, prompts: Mapping[str, Prompt]) -> None:
        self._prompts = prompts

    @classmethod
    def read(cls, *names: str) -> "JudgePrompts":
        """The files `judge_NAME.md`."""
        return cls({name: read_prompt(f"judge_{name}") for name in names})

    @property
    def hash(self) -> str:
        """One hash for all of them; that of nothing where there are none."""
        together = "".join(f"{name}:{prompt.hash};" for name, prompt in sorted(self._prompts.items()))
        return hashlib.sha256(together.encode()).hexdigest()[:16]

    def user(self, name: str, **parts: str) -> str:
        """The user message with its places filled."""
        return fill(self._prompts[name].section("user"), parts)

    def system(self, name: str) -> str:
        """The system message."""
        return self._prompts[name].section("system")
