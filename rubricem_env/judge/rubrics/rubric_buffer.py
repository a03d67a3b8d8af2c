"""The rubrics of all questions during a run, as they are saved in a checkpoint."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal
from weakref import WeakValueDictionary

from pydantic import TypeAdapter

from rubricem_env.domain.inputs import validating
from rubricem_env.judge.rubrics.rubric_set import RubricSet

_STATE = TypeAdapter(tuple[Literal[1], dict[str, str]])
"""A rubric buffer in a checkpoint: its version, and each question's rubrics as JSON text."""


class RubricBuffer:
    """Rubrics by query key. Reading needs no lock; who reads, awaits and writes must do so within `editing`."""

    def __init__(self, questions: Mapping[str, RubricSet] | None = None) -> None:
        self._questions = dict(questions or {})
        # State as text, question by question: a step changes 32 of thousands, and no checkpoint waits for all.
        self._texts = {key: rubrics.model_dump_json() for key, rubrics in self._questions.items()}
        self._locks: WeakValueDictionary[tuple[str, int], asyncio.Lock] = WeakValueDictionary()

    def rubrics(self, query_key: str) -> RubricSet:
        """The question's rubrics; empty for an unknown question."""
        return self._questions.get(query_key) or RubricSet()

    def replace(self, query_key: str, rubrics: RubricSet) -> None:
        self._questions[query_key] = rubrics
        self._texts[query_key] = rubrics.model_dump_json()

    @asynccontextmanager
    async def editing(self, query_key: str) -> AsyncIterator[RubricSet]:
        """The question's rubrics, for one caller at a time; other questions do not wait."""
        # A lock belongs to the event loop in which it was first awaited, so each loop has its own.
        key = (query_key, id(asyncio.get_running_loop()))
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        async with lock:
            yield self.rubrics(query_key)

    def state_dict(self) -> dict[str, Any]:
        """Everything, as JSON values: each question's rubrics as JSON text. Equal buffers give equal states."""
        return {"version": 1, "questions": {key: self._texts[key] for key in sorted(self._texts)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; nothing changes when it is refused.

        Raises:
            FileFormatError: of another version, or malformed.
        """
        with validating("the rubric buffer's state is malformed, or of another version"):
            # A file may hold anything, so that it need not be a mapping.
            given = (state.get("version"), state.get("questions")) if isinstance(state, Mapping) else state
            _, texts = _STATE.validate_python(given, strict=True)
            questions = {key: RubricSet.model_validate_json(text) for key, text in texts.items()}
        self._questions = questions
        self._texts = texts
