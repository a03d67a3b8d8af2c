"""The windowed curriculum: every question met twice, a window of steps apart (appendix D).

    step in window   1    2    3    4    5    6        window = 3
    batch            B1   B2   B3   B1   B2   B3
    encounter        new  new  new  repeat ...

At a new encounter the rubric bank offers lessons of other questions, at the repeat the question's own: by then its
reflection, one step late, has had `window` steps to be written, judged and kept.

Without repeats a window is its new batches alone: each question is met once an epoch.

The stream has no end. Questions come from one permutation after another; a window that reaches the end of one goes
on with the next, and passes over those that it holds already, which then lead the windows that follow.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, StrictInt, TypeAdapter

from rubricem_agent.memory.bank import Retrieval
from rubricem_env.domain.errors import ConfigError, UsageError
from rubricem_env.domain.inputs import validating

ReflectPhase = Literal["new", "all"]
"""Which encounters are reflected on: the first of a window, as the paper's text says, or all, as Algorithm 1."""
OnMiss = Literal["none", "cross"]
"""What a repeat is shown whose own lesson is missing: nothing, or lessons of similar questions."""
Encounter = Literal["new", "repeat"]
"""Whether a step's questions are met for the first time in their window."""


_SAVED = ("step", "waiting", "held", "rng")
_STATE = TypeAdapter(tuple[Annotated[int, Field(strict=True, ge=0)], list[StrictInt], list[StrictInt], Any])
"""The values of these names: the step, and the indices of questions that wait and that the window holds."""


def retrieval_at(encounter: Encounter) -> Retrieval:
    """How the bank is asked: for lessons of similar questions, or at a repeat for the question's own lesson."""
    return "cross" if encounter == "new" else "within"


def cycle_steps(window: int, *, repeats: bool) -> int:
    """The steps until the curriculum draws new questions: a window, and its repeats."""
    return 2 * window if repeats else window


class QueryBatch(NamedTuple):
    """The questions of one step."""

    step: int
    """From 1."""
    keys: tuple[str, ...]
    encounter: Encounter

    @property
    def retrieval(self) -> Retrieval:
        return retrieval_at(self.encounter)


class Curriculum:
    """An endless iterator of `QueryBatch`; the same keys and generator give the same stream.

    Raises:
        ConfigError: the keys cannot fill a window, or one stands twice.
    """

    def __init__(
        self, keys: Sequence[str], *, batch_size: int, window: int, rng: np.random.Generator, repeats: bool = True
    ) -> None:
        _check(keys, batch_size=batch_size, window=window)
        self._keys = tuple(keys)
        self._batch_size = batch_size
        self._window = window
        self._repeats = repeats
        self._cycle = cycle_steps(window, repeats=repeats)
        self._rng = rng
        self._step = 0
        self._waiting: list[int] = []
        self._held: list[int] = []

    def __iter__(self) -> Iterator[QueryBatch]:
        return self

    def __next__(self) -> QueryBatch:
        index = self._step % self._cycle
        if index == 0:
            self._held = self._draw_window()
        start = index % self._window * self._batch_size
        encounter: Encounter = "new" if index < self._window else "repeat"
        self._step += 1
        keys = tuple(self._keys[number] for number in self._held[start : start + self._batch_size])
        return QueryBatch(self._step, keys, encounter)

    def _draw_window(self) -> list[int]:
        """Different questions for a whole window, in the order of the permutations."""
        drawn: list[int] = []
        passed_over: list[int] = []
        while len(drawn) < self._window * self._batch_size:
            if not self._waiting:
                self._waiting = self._rng.permutation(len(self._keys)).tolist()
            index = self._waiting.pop(0)
            (passed_over if index in drawn else drawn).append(index)
        self._waiting = passed_over + self._waiting
        return drawn

    def state_dict(self) -> dict[str, Any]:
        """All that the next batch depends on, as JSON, the generator included."""
        return {
            "step": self._step,
            "waiting": list(self._waiting),
            "held": list(self._held),
            "rng": self._rng.bit_generator.state,
            **self._identity(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken.

        Raises:
            UsageError: it was taken with other questions, batch size or window, or is no state of a curriculum.
        """
        for name, here in self._identity().items():
            if state.get(name) != here:
                raise UsageError(
                    f"the checkpoint's curriculum has {name.replace('_', ' ')} {state.get(name)}, this run has {here}; "
                    "the order of questions cannot go on. Resume with the same questions and train settings."
                )
        with validating("the curriculum's state holds what no run has saved", error=UsageError):
            step, waiting, held, rng = _STATE.validate_python([state.get(name) for name in _SAVED])
        size = self._window * self._batch_size
        questions = range(len(self._keys))
        # Every question of the permutations so far was drawn or is waiting.
        drawn = -(-step // self._cycle) * size
        for indices, count in ((waiting, -drawn % len(questions)), (held, min(drawn, size))):
            if len(indices) != count or len({*indices} & {*questions}) != count:
                raise UsageError(
                    f"the curriculum's state holds other questions than those that a run on {len(questions)} holds."
                )
        try:
            self._rng.bit_generator.state = rng
        except (ArithmeticError, LookupError, TypeError, ValueError) as cause:
            raise UsageError(
                "the curriculum's state holds no state of its random generator. Resume from another."
            ) from cause
        self._step = step
        self._waiting = waiting
        self._held = held

    def _identity(self) -> dict[str, Any]:
        digest = hashlib.sha256("\0".join(self._keys).encode()).hexdigest()[:16]
        return {
            "batch_size": self._batch_size,
            "window": self._window,
            "repeats": self._repeats,
            "questions": f"{len(self._keys)} ({digest})",
        }


def _check(keys: Sequence[str], *, batch_size: int, window: int) -> None:
    if window < 1:
        raise ConfigError(f"window is {window}; at least 1 step lies between a question and its repeat.")
    if batch_size < 1:
        raise ConfigError(f"questions_per_step is {batch_size}; a step needs at least 1 (the paper uses 32).")
    if len(set(keys)) < len(keys):
        twin = next(key for position, key in enumerate(keys) if key in keys[:position])
        raise ConfigError(f"the question with key {twin!r} is listed twice in the training questions; keep one.")
    if len(keys) < batch_size * window:
        raise ConfigError(
            f"{batch_size} questions a step and a window of {window} steps need {batch_size * window} different "
            f"questions; there are {len(keys)}. Add questions, or lower questions_per_step or window (veRL: "
            "data.train_batch_size, rubricem.window)."
        )
