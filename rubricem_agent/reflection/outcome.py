"""What reflecting on one question has yielded: samples to train on, and the item that the bank took."""

from collections.abc import Sequence

from rubricem_agent.memory.gate import RefusalCode
from rubricem_agent.memory.item import BankItem
from rubricem_agent.policy.base import Opening, Piece
from rubricem_env.domain.base import Frozen, Text
from rubricem_env.domain.reflection import ReflectionScore


class ReflectionSample(Frozen):
    """One candidate, for training and for the record."""

    text: Text
    pieces: tuple[Piece, ...] = ()
    """Its tokens, the prompt's first; empty where the policy works in text."""
    score: ReflectionScore | None = None
    """None where the judge gave none: such a sample is not trained on. Its reward is the score's `utility`."""
    justification: Text = ""
    refusal: Text = ""
    """Why it could not enter the bank, as code and sentence; empty where it could or was not tried."""

    @property
    def is_readable(self) -> bool:
        """Whether its blocks could be read, whatever the bank made of them."""
        return not self.refusal.startswith(RefusalCode.FORMAT)


class ReflectionOutcome(Frozen):
    """One question's reflections in one step. Travels through a checkpoint as JSON."""

    query_key: Text
    step: int
    attempt: int
    """Which of the group's attempts was drawn."""
    opening: Opening
    prompt_hash: Text
    temperature: float
    """That of the samples; their log-probabilities must be taken at it (choice C9)."""
    policy_version: int | None = None
    """How many updates the weights that drew the samples had seen (choice C16); None where nobody counts."""
    samples: tuple[ReflectionSample, ...]
    chosen: int | None = None
    """The place of the sample that entered the bank."""
    item: BankItem | None = None

    @property
    def has_lesson(self) -> bool:
        """Whether the bank took one, and may show it."""
        return self.item is not None and self.item.is_retrievable

    @property
    def scored(self) -> tuple[ReflectionSample, ...]:
        """The samples to train on, sound of form or not (choice C3)."""
        return tuple(sample for sample in self.samples if sample.score is not None)


def readable_share(outcomes: Sequence[ReflectionOutcome]) -> float | None:
    """Of all candidates, those whose blocks can be read: utility may rise while this falls. None without any."""
    readable = [sample.is_readable for outcome in outcomes for sample in outcome.samples]
    return round(sum(readable) / len(readable), 4) if readable else None
