"""What a rollout asks of a policy: a conversation for each episode, in text, or in tokens where the policy has them.

A conversation only grows. The policy's turns and the tools' answers follow each other inside one assistant turn
(choice A15); in token mode what the policy emitted is kept as the ids that it emitted, and never tokenised again.

The tiny policy that comes with the package: a trained Qwen3 of a million parameters, for the almanac, named `tiny`.

`shipped/tiny/README.md` beside this file tells how it was made and how good it is.

Watches a turn while it is written, and says when to stop: a complete action, a copied tool answer, a loop.
"""

from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ModelError
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.parser import EmissionStream, parse_turn


class ContextOverflow(ModelError):
    """The conversation has outgrown what the policy can read. The episode is over; nothing is broken."""


class Opening(NamedTuple):
    """What a conversation begins with: the rules, and the question with all that goes before and after it."""

    system: str
    user: str


class Sampling(Frozen):
    """How a policy draws its text."""

    temperature: Annotated[float, Field(ge=0, le=5)] = 1.0
    """0 takes the likeliest token every time."""
    max_turn_tokens: Annotated[int, Field(ge=1)] = 8_192
    """Of one turn; a turn that reaches it ends without an action."""


class TurnEnd(StrEnum):
    """Why a turn is over."""

    ACTION = "action"
    """It closed a tool call or an answer."""
    STOPPED = "stopped"
    """The policy ended its turn itself, without an action."""
    LENGTH = "length"
    """The limit of the turn, or of what the policy can read."""
    REPEATING = "repeating"
    """It wrote the same few words over and over."""
    FOREIGN = "foreign"
    """It began to write a tool's answer itself."""


class Emission(NamedTuple):
    """One turn as the policy wrote it."""

    text: str
    """Text after the action included, where the policy could not be stopped in time."""
    end: TurnEnd
    usage: Usage = Usage(calls=1)


class TokenSegment(NamedTuple):
    """Consecutive tokens of one author, in the order of the conversation."""

    ids: tuple[int, ...]
    is_policy: bool = False
    logprobs: tuple[float, ...] = ()
    """Of each id, under the temperature that it was drawn at; empty on pieces that the policy did not write."""
    starts: tuple[int, ...] = ()
    """Where in its turn's text each id begins; empty on pieces that the policy did not write."""
    overhang: str = ""
    """What the last token says beyond the end of the action, where the closing tag ends inside a token."""


class Listener(Protocol):
    """Hears a turn while it is written."""

    def wrote(self, text: str) -> None:
        """The next piece of it."""
        ...

    def restarted(self) -> None:
        """The connection broke: the turn begins anew."""
        ...


class Silence:
    """A listener that does not listen."""

    def wrote(self, text: str) -> None:
        return None

    def restarted(self) -> None:
        return None


class Conversation(Protocol):
    """One episode's exchange with the policy. Calls come one after the other: emit, observe, emit, and so on."""

    async def emit(self, *, max_tokens: int, listener: Listener) -> Emission:
        """The policy's next turn, of at most so many tokens, stopped where its action is complete.

        Raises:
            ContextOverflow: there is no room for another turn.
            ModelError: the policy could not be reached, or failed.
        """
        ...

    def observe(self, text: str) -> None:
        """Append what a tool or the environment says; the policy reads it before its next turn."""
        ...

    @property
    def pieces(self) -> tuple[TokenSegment, ...]:
        """The tokens so far, the prompt first, one piece for each emission; nothing for a policy without token mode."""
        ...

    def close(self) -> None:
        """Give back what the conversation holds, such as its cache; safe to call twice."""
        ...


class Policy(Protocol):
    """A model that can act. Many conversations run at once on one event loop."""

    @property
    def name(self) -> str: ...

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> Conversation:
        """Begin a conversation. Does no I/O; what the policy draws depends on `seed` alone where it can be seeded."""
        ...

    def count_tokens(self, text: str) -> int:
        """How many tokens a text is, exactly or as an estimate."""
        ...

    async def aclose(self) -> None: ...


TINY = "tiny"
TINY_SYSTEM = "Search, then answer."
"""The system prompt that it was taught under."""


def model_folder(path: Path) -> Path:
    """The folder itself; `tiny`, where there is no such folder, is the policy that comes with the package."""
    if str(path) != TINY or path.is_dir():
        return path
    return Path(str(resources.files("rubricem_agent.policy").joinpath("shipped", TINY)))


PERIOD = 200
"""The longest loop that is noticed, in characters."""
LOOP_SPAN = 1_600
"""How much text must be nothing but that loop."""
_CHECK_EVERY = 400


class TurnWatch:
    """One turn in the making."""

    def __init__(self) -> None:
        self._stream = EmissionStream()
        self._tail = ""
        self._unchecked = 0

    def feed(self, piece: str) -> TurnEnd | None:
        """Take the next piece; why the turn is over, or None as long as it is not."""
        turn = self._stream.feed(piece)
        if turn is not None:
            return TurnEnd.ACTION if turn.has_action else TurnEnd.FOREIGN
        self._tail = (self._tail + piece)[-LOOP_SPAN:]
        self._unchecked += len(piece)
        if self._unchecked < _CHECK_EVERY:
            return None
        self._unchecked = 0
        return TurnEnd.REPEATING if is_looping(self._tail) else None


def is_looping(tail: str) -> bool:
    """Whether a text of at least `LOOP_SPAN` characters is one short piece over and over."""
    if len(tail) < LOOP_SPAN:
        return False
    tail = tail[-LOOP_SPAN:]
    period = tail.find(tail[:PERIOD], 1)
    return 0 < period <= PERIOD and tail[period:] == tail[:-period]


def kept_length(text: str) -> int:
    """How much of a turn's text the episode keeps: up to the end of its action, or to tool output of its own making."""
    return parse_turn(text).end
