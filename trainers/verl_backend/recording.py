"""What a run on veRL writes down to be looked at: each group that a step trains on, and what became of the bank.

A group is noted when it is judged, and written when a step has taken it, with the credit that it got: under the
trainer's step, which a step ahead is later than the question's own. Noted groups are kept with the desk.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rubricem_agent.learn.run_record import RECORD_FOLDER, GroupEntry, RolloutEntry
from rubricem_agent.learn.run_recorder import RunRecorder
from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.policy.tokenizer import PolicyTokenizer
from trainers.local.record_entries import credited
from trainers.verl_backend.desk_types import RolloutCredit

SWITCH = "rubricem.record=false"
"""How a run is told to keep none."""


class NotedGroup(NamedTuple):
    """A judged group that no step has taken yet; its entries have no credit, and the question's own step."""

    group: GroupEntry
    rollouts: tuple[RolloutEntry, ...]


class DeskRecord:
    """The record of one run, in a folder of that run's."""

    def __init__(self, run: Path, bank: RubricBank) -> None:
        self._recorder = RunRecorder(run / RECORD_FOLDER, switch=SWITCH)
        self._bank = bank
        self._noted: dict[str, NotedGroup] = {}
        self._step = 0
        self._places = 0
        """Groups of the step that have been written."""

    def begin(self, step: int, tokenizer: PolicyTokenizer) -> None:
        """Go on with the record after `step`, the last one that is not done again.

        Raises:
            UsageError: the folder cannot be written.
        """
        self._recorder.begin(step, embedder=self._bank.embedder_name)
        self._recorder.record_vocabulary(lambda: [tokenizer.decode([token_id]) for token_id in range(tokenizer.size)])

    def note(self, name: str, group: GroupEntry, rollouts: Sequence[RolloutEntry]) -> None:
        """Keep a judged group until a step takes it."""
        self._noted[name] = NotedGroup(group, tuple(rollouts))

    def write(self, step: int, credits_: Sequence[RolloutCredit]) -> None:
        """Write the groups that a step has taken, in the order in which they are named, and the bank's changes.

        A group that was noted by nobody, such as one from before the record was switched on, is left out.

        Raises:
            UsageError: the disk refuses.
        """
        if step != self._step:
            self._step, self._places = step, 0
        taken: dict[str, dict[int, RolloutCredit]] = {}
        for credit in credits_:
            taken.setdefault(credit.group, {})[credit.place] = credit
        entries = []
        for name, of_group in taken.items():
            noted = self._noted.pop(name, None)
            if noted is not None:
                entries.append(self._placed(noted, of_group))
        self._recorder.record_step(entries)
        self._recorder.record_lessons(self._bank.changed_since(self._recorder.bank_revision), step=step)

    def state_dict(self) -> dict[str, Any]:
        """The noted groups, as JSON."""
        return {
            name: [noted.group.model_dump(mode="json"), [one.model_dump(mode="json") for one in noted.rollouts]]
            for name, noted in self._noted.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._noted = {
            name: NotedGroup(
                GroupEntry.model_validate(group, strict=False),
                tuple(RolloutEntry.model_validate(one, strict=False) for one in rollouts),
            )
            for name, (group, rollouts) in state.items()
        }

    def _placed(
        self, noted: NotedGroup, credits_: Mapping[int, RolloutCredit]
    ) -> tuple[GroupEntry, tuple[RolloutEntry, ...]]:
        """The entries in their place among the groups of the step; a rollout that the step has not seen has no credit."""
        place = {"step": self._step, "place": self._places}
        self._places += 1
        rollouts = (
            credited(one, returns=own.returns, advantages=own.advantages, trained=own.trained)
            if (own := credits_.get(one.attempt)) is not None
            else one
            for one in noted.rollouts
        )
        return noted.group.model_copy(update=place), tuple(one.model_copy(update=place) for one in rollouts)
