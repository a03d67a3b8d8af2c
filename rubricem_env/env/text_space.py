"""The Gymnasium space of actions and observations: any text."""

from typing import Any, NoReturn

from gymnasium.spaces import Text
from gymnasium.vector.utils.shared_memory import create_shared_memory

from rubricem_env.domain.errors import UsageError

MAX_LENGTH = 10_000_000
_SAMPLE_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789<>/=\"'.,:;!?-_\n"


class AnyText(Text):
    """Any string up to a length, the empty one included; Gymnasium's own space refuses spaces and accents.

    `sample()` stays within ASCII.
    """

    def __init__(self, max_length: int = MAX_LENGTH, *, seed: int | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=_SAMPLE_CHARACTERS, seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random string of at most 64 characters, for Gymnasium's environment checker."""
        del mask, probability  # they select from a character set, which real text does not have
        size = int(self.np_random.integers(0, 65))
        return "".join(self.np_random.choice(list(_SAMPLE_CHARACTERS), size=size))

    def __repr__(self) -> str:
        return f"AnyText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash(("AnyText", self.max_length))


@create_shared_memory.register(AnyText)
def _refuse_shared_memory(space: AnyText, n: int = 1, ctx: object = None) -> NoReturn:
    """Gymnasium would fill the buffer to its full length, and lose every character outside the sample set."""
    del space, n, ctx
    raise UsageError(
        "vectorization_mode='async' keeps observations in shared memory, which cannot hold text of any length. Leave "
        "the mode out for one process in which tool calls overlap, or add vector_kwargs={'shared_memory': False}."
    )
