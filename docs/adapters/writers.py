"""Who writes the attempts of the examples: the trained tiny policy where there is one, else the tutor, and it is said.

RUBRICEM_TINY_POLICY names the policy's folder; without it the policy that comes with the package is taken, or the one
that `python -m research.tiny_policy --config tiny_policy` leaves.
"""

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from docs.adapters.tutor import ATTEMPTS, Tutor, tutored_questions
from rubricem_agent.policy import TINY, model_folder

Writer = Callable[[str], str]
"""One attempt: the next turn for each observation, the prompt first."""


class Writers(Protocol):
    """Begins attempts."""

    name: str

    def begin(self, index: int) -> Writer: ...

    def close(self) -> None: ...


def policy_folder() -> Path | None:
    """Where the trained policy lies, if it does."""
    named = os.environ.get("RUBRICEM_TINY_POLICY")
    trained_here = Path(__file__).parents[2] / "runs" / "tiny_policy" / "model"
    folders = [Path(named)] if named else [model_folder(Path(TINY)), trained_here]
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def find_writers() -> Writers:
    """The trained policy where it can be played, or else the tutor."""
    folder = policy_folder()
    if folder is None or find_spec("torch") is None or find_spec("transformers") is None:
        return Tutors()
    writers: Writers = import_module("docs.adapters.policy_writers").PolicyWriters(folder)
    return writers


class Tutors:
    """The tutor's four attempts, over and over."""

    name = "the tutor (torch and transformers, or the trained policy, are not here; see docs/adapters/writers.py)"

    def begin(self, index: int) -> Writer:
        # The prompt is the question, and after an empty line the form of the answer.
        def write(observation: str) -> str:
            if not started:
                started.append(Tutor(tutored_questions()[observation.partition("\n\n")[0]], index % len(ATTEMPTS)))
            return started[0](observation)

        started: list[Tutor] = []
        return write

    def close(self) -> None:
        return None
