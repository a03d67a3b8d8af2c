"""The questions of the curriculum as veRL's stream of training data."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rubricem_agent.learn.curriculum import Curriculum
from rubricem_env.domain.trajectory import Query

from .verl_names import AGENT_LOOP

Row = dict[str, npt.NDArray[np.object_]]
"""A batch of one prompt, as veRL's own `collate_fn` makes it: a column of objects for each field."""


class CurriculumStream:
    """The windowed curriculum as veRL's stream of training data: endless, one prompt at a time, in the steps' order.

    It replaces veRL's data loader, which veRL asks for prompts one by one and whose state it saves with the weights. A
    new iteration continues where the last one stopped.
    """

    def __init__(self, curriculum: Curriculum, queries: Mapping[str, Query]) -> None:
        self._curriculum = curriculum
        self._queries = queries
        self._waiting: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        if not self._waiting:
            batch = next(self._curriculum)
            self._waiting = [
                {
                    "raw_prompt": [{"role": "user", "content": self._queries[key].question}],
                    "index": index,
                    "agent_name": AGENT_LOOP,
                    "data_source": AGENT_LOOP,
                    "query": self._queries[key].model_dump_json(),
                    "encounter": batch.encounter,
                    "lesson_step": batch.step,
                }
                for index, key in enumerate(batch.keys)
            ]
        row: Row = {}
        for name, value in self._waiting.pop(0).items():
            row[name] = np.empty(1, dtype=object)
            row[name][0] = value
        return row

    def state_dict(self) -> dict[str, Any]:
        """The curriculum's state, and the prompts of its step that are not requested yet; as JSON."""
        return {"curriculum": self._curriculum.state_dict(), "waiting": list(self._waiting)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken; raises UsageError as the curriculum does."""
        self._curriculum.load_state_dict(state["curriculum"])
        self._waiting = list(state["waiting"])
