"""The rubric buffer: every question's rubrics by query key, with a lock for each, saved and restored exactly."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from pydantic import ValidationError

from rubricem_env.domain.errors import FileFormatError
from rubricem_env.domain.trajectory_json import first_problem
from rubricem_env.judge.rubric_set import RubricSet

BUFFER_VERSION = 1
_EMPTY = RubricSet()


class RubricBuffer:
    """Rubrics by question. Reading needs no lock; whoever reads, awaits and writes holds `editing`."""

    def __init__(self, questions: Mapping[str, RubricSet] | None = None) -> None:
        self._questions = dict(questions or {})
        # Each question's state as text, made when it is first saved: a step changes 32 questions of thousands.
        self._texts: dict[str, str] = {}
        self._locks: WeakValueDictionary[tuple[str, int], asyncio.Lock] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._questions)

    def rubrics(self, query_key: str) -> RubricSet:
        """The question's rubrics; empty where it was never seen."""
        return self._questions.get(query_key, _EMPTY)

    def replace(self, query_key: str, rubrics: RubricSet) -> None:
        self._questions[query_key] = rubrics
        self._texts.pop(query_key, None)

    @asynccontextmanager
    async def editing(self, query_key: str) -> AsyncIterator[RubricSet]:
        """The question's rubrics, for one caller at a time; other questions are not held up."""
        # A lock belongs to the loop in which it was first waited for, so each loop has its own.
        place = (query_key, id(asyncio.get_running_loop()))
        lock = self._locks.get(place)
        if lock is None:
            lock = self._locks[place] = asyncio.Lock()
        async with lock:
            yield self.rubrics(query_key)

    def export(self) -> Iterator[dict[str, Any]]:
        """One row for each rubric, in the shape that a rubric file has, with its fate and provenance."""
        for key in sorted(self._questions):
            rubrics = self._questions[key]
            for rubric in rubrics.persistent:
                yield _row(key, rubric.model_dump(mode="json"), fate={"status": "persistent"})
            for entry in rubrics.active:
                yield _row(
                    key, entry.rubric.model_dump(mode="json"), fate={"status": "active", "variance": entry.variance}
                )
            for gone in rubrics.archive:
                fate = {"status": "retired", "reason": gone.reason.value, "retired_step": gone.retired_step}
                yield _row(key, gone.last.rubric.model_dump(mode="json"), fate=fate)

    def state_dict(self) -> dict[str, Any]:
        """Everything, as JSON values: each question's rubrics as JSON text. Equal buffers give equal states."""
        for key, rubrics in self._questions.items():
            if key not in self._texts:
                self._texts[key] = rubrics.model_dump_json()
        return {"version": BUFFER_VERSION, "questions": {key: self._texts[key] for key in sorted(self._questions)}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; nothing changes when it is refused.

        Raises:
            FileFormatError: of another version, or malformed.
        """
        if state.get("version") != BUFFER_VERSION:
            raise FileFormatError(
                f"the rubric buffer's state has the version {state.get('version')!r}; this release reads {BUFFER_VERSION}."
            )
        try:
            texts = dict(state["questions"].items())
            questions = {key: RubricSet.model_validate_json(text) for key, text in texts.items()}
        except (KeyError, AttributeError) as cause:
            raise FileFormatError("the rubric buffer's state has no questions; is it another file?") from cause
        except ValidationError as cause:
            raise FileFormatError(f"the rubric buffer's state is malformed: {first_problem(cause)}") from cause
        self._questions, self._texts = questions, texts


def _row(key: str, rubric: dict[str, Any], *, fate: dict[str, Any]) -> dict[str, Any]:
    return {"query_key": key, **rubric, **fate}
