"""The windowed curriculum as veRL's stream of training data: one question at a time, in the order of the steps.

veRL asks its data loader for prompts one by one and saves its state with the weights; this takes the loader's place.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.curriculum import Curriculum
from rubricem_env.domain.query import Query

AGENT_LOOP = "rubricem"
"""The agent loop that plays our episodes, as veRL knows it."""
Row = dict[str, npt.NDArray[np.object_]]
"""A batch of one prompt, as veRL's own `collate_fn` makes them: a column of objects for each field."""


class CurriculumStream:
    """An endless iterable of prompts. Iterating again goes on where the last iteration stopped."""

    def __init__(self, curriculum: Curriculum, queries: Mapping[str, Query]) -> None:
        self._curriculum = curriculum
        self._queries = queries
        self._waiting: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        if not self._waiting:
            self._waiting = self._rows()
        return {name: _column(value) for name, value in self._waiting.pop(0).items()}

    def state_dict(self) -> dict[str, Any]:
        """The curriculum's state, and the prompts of its step that nobody asked for yet; as JSON."""
        return {"curriculum": self._curriculum.state_dict(), "waiting": list(self._waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            CheckpointError: it was taken with other questions, another batch size or another window.
        """
        self._curriculum.load_state_dict(state["curriculum"])
        self._waiting = list(state["waiting"])

    def _rows(self) -> list[dict[str, Any]]:
        batch = next(self._curriculum)
        return [
            {
                "raw_prompt": [{"role": "user", "content": self._queries[key].question}],
                "index": place,
                "agent_name": AGENT_LOOP,
                "data_source": AGENT_LOOP,
                "query": self._queries[key].model_dump_json(),
                "encounter": batch.encounter.value,
                "lesson_step": batch.step,
            }
            for place, key in enumerate(batch.keys)
        ]


def _column(value: object) -> npt.NDArray[np.object_]:
    """One object, whatever it is, as a column of length 1."""
    column = np.empty(1, dtype=object)
    column[0] = value
    return column
