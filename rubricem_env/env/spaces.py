"""A text space that accepts real text; Gymnasium's own refuses a space, a line break, an accent."""

from typing import Any

from gymnasium.spaces import Text

MAX_LENGTH = 10_000_000
_SAMPLE_CHARACTERS = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789<>/=\"'.,:;!?-_\n"


class AnyText(Text):
    """Any string up to a length, the empty one included. `sample()` stays within ASCII."""

    def __init__(self, max_length: int = MAX_LENGTH, *, seed: int | None = None) -> None:
        super().__init__(max_length, min_length=0, charset=_SAMPLE_CHARACTERS, seed=seed)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random string of at most 64 characters: what a checker needs, not a policy."""
        del mask, probability  # they choose from the character set, which real text does not have
        size = int(self.np_random.integers(0, 65))
        return "".join(self.np_random.choice(list(_SAMPLE_CHARACTERS), size=size))

    def __repr__(self) -> str:
        return f"AnyText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyText) and other.max_length == self.max_length

    def __hash__(self) -> int:
        return hash(("AnyText", self.max_length))
