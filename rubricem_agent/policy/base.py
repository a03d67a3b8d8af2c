"""What a rollout needs of a policy: a conversation for each episode, in text or in tokens.

A conversation only grows, until its episode folds it: then it begins again from the view. The policy's turns and the
tools' answers follow each other inside one assistant turn. In token mode the ids that the policy emitted are kept, and
never tokenised again.

`TurnWatch` decides while a turn is written when to stop it. `tiny` is the policy that comes with the package: a trained
Qwen3 of a million parameters for the almanac, described in `shipped/tiny/README.md` beside this file.
"""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from rubricem_env.domain.scaffold import Scaffold
from rubricem_env.env.episode import Episode
from rubricem_env.env.view import View
from rubricem_env.llm.usage import Usage
from rubricem_env.scaffold.grammar import DEFAULT, grammar_of
from rubricem_env.scaffold.parser import EmissionStream
from rubricem_records.rollouts.sampling import Sampling
from rubricem_records.rollouts.snippet_sources import SnippetSource


def stop_strings(scaffold: Scaffold) -> tuple[str, ...]:
    """The closing tags of the actions."""
    return tuple(f"</{name}>" for name in grammar_of(scaffold).actions)


STOP_STRINGS = stop_strings(DEFAULT)
"""The same of deep research."""


class Opening(NamedTuple):
    """The first messages of a conversation: the rules, and the question with its references and form."""

    system: str
    user: str
    scaffold: Scaffold = DEFAULT
    """The tags that the policy is to write."""

    @property
    def stops(self) -> tuple[str, ...]:
        """What engines are told to stop at: the closing tags of the actions."""
        return stop_strings(self.scaffold)


TurnEnd = Literal["action", "stopped", "length", "repeating", "foreign"]
"""Why a turn is over.

`action`: it closed a tool call or an answer. `stopped`: the policy ended it without an action. `length`: the limit of
the turn or of the context. `repeating`: it wrote the same few words over and over. `foreign`: it began to write a
tool's answer itself.
"""


class Emission(NamedTuple):
    """One turn as the policy wrote it."""

    text: str
    """Includes text after the action if the policy could not be stopped in time."""
    end: TurnEnd
    usage: Usage = Usage(calls=1)
    thought: str = ""
    """The reasoning that the server sent apart from the text."""


class TokenSegment(NamedTuple):
    """Consecutive tokens of one author, in the order of the conversation."""

    ids: tuple[int, ...]
    is_policy: bool = False
    logprobs: tuple[float, ...] = ()
    """Of each id, at its sampling temperature; empty where the policy did not write."""
    starts: tuple[int, ...] = ()
    """The character of its turn's text at which each id begins; empty where the policy did not write."""
    overhang: str = ""
    """The text of the last token after the end of the action, where the closing tag ends inside a token."""
    begins_window: bool = False
    """Whether the policy reads nothing from before it: the prompt of a context whose older part was folded."""


class Listener:
    """Receives a turn while it is written. This one ignores everything; subclasses override what they need."""

    def began(self, episode: Episode) -> None:
        """Called by `run_episode` with the episode before its first turn."""

    def wrote(self, text: str) -> None:
        """The next part of the text."""

    def restarted(self) -> None:
        """The connection broke, and the turn starts again."""

    def found(self, sources: Mapping[str, SnippetSource]) -> None:
        """Called by `run_episode` before `observed`, with the sources of a tool's snippets by id."""

    def observed(self, text: str) -> None:
        """Called by `run_episode` with a tool's answer, or a notice of the environment."""

    def folded(self, view: View) -> None:
        """Called by `run_episode` after `observed`, with what the policy reads from now on."""


class Conversation(Protocol):
    """One episode's exchange with the policy. Calls come one after the other: emit, observe, emit, and so on."""

    async def emit(self, *, max_tokens: int, listener: Listener) -> Emission:
        """The policy's next turn, of at most `max_tokens`, stopped when its action is complete.

        Raises:
            ContextOverflow: there is no room for another turn.
            ModelError: the policy could not be reached, or failed.
        """
        ...

    def observe(self, text: str) -> None:
        """Append text of a tool or the environment; the policy reads it before its next turn.

        After a turn that the policy ended by itself it is a message of the user, and a new turn of the policy begins.
        """
        ...

    def fold(self, view: View) -> None:
        """Called in place of `observe` where the episode has folded: the policy reads the view in place of everything.

        The view ends with the observation. Only episodes with a `fold_at` call it.
        """
        ...

    @property
    def pieces(self) -> tuple[TokenSegment, ...]:
        """The tokens so far: the prompt, then one segment per emission or observation; empty without token mode."""
        ...

    def close(self) -> None:
        """Free what the conversation holds, such as its cache; safe to call twice."""
        ...


class Policy(Protocol):
    """A model that can act. Many conversations run at once on one event loop."""

    @property
    def name(self) -> str: ...

    def open(self, opening: Opening, *, sampling: Sampling, seed: int) -> Conversation:
        """Begin a conversation, without I/O. Where a policy can be seeded, its draws depend on `seed` alone."""
        ...

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text, exact or estimated."""
        ...

    async def aclose(self) -> None: ...


TINY = "tiny"

TINY_SYSTEM = "Search, then answer."
"""The system prompt of its training."""

SYSTEM_FILE = "system_prompt.txt"
"""Beside the weights of a model that was trained with a system prompt of its own."""


def own_system(path: Path) -> str:
    """The system prompt that the model of a folder was trained with; empty where it has none of its own."""
    folder = model_folder(path)
    if folder != path:
        return TINY_SYSTEM
    try:
        return (folder / SYSTEM_FILE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def model_folder(path: Path) -> Path:
    """The folder itself; `tiny` means the policy of the package, unless there is a folder of that name."""
    if str(path) != TINY or path.is_dir():
        return path
    return Path(str(resources.files("rubricem_agent.policy").joinpath("shipped", TINY)))


PERIOD = 200
"""The longest loop that is detected, in characters."""

LOOP_SPAN = 1_600
"""The length of text that must consist of the loop alone, in characters."""

_CHECK_EVERY = 400


class TurnWatch:
    """One turn while it is written: passes it to a listener and tells when it is over."""

    def __init__(self, listener: Listener, scaffold: Scaffold = DEFAULT) -> None:
        self.text = ""
        """What has been written so far."""
        self.thought = ""
        """What came apart from the text."""
        self.end: TurnEnd | None = None
        self._listener = listener
        self._stream = EmissionStream(scaffold=scaffold)
        self._unchecked = 0

    def write(self, piece: str) -> TurnEnd | None:
        """Take the next part; why the turn is over, or None while it continues."""
        self.text += piece
        self._listener.wrote(piece)
        turn = self._stream.feed(piece)
        self._unchecked += len(piece)
        if turn is not None:
            self.end = "action" if turn.has_action else "foreign"
        elif self._unchecked >= _CHECK_EVERY:
            self._unchecked = 0
            self.end = "repeating" if is_looping(self.text[-LOOP_SPAN:]) else None
        return self.end


def is_looping(tail: str) -> bool:
    """Whether the last `LOOP_SPAN` characters repeat one short text."""
    if len(tail) < LOOP_SPAN:
        return False
    tail = tail[-LOOP_SPAN:]
    period = tail.find(tail[:PERIOD], 1)
    return 0 < period <= PERIOD and tail[period:] == tail[:-period]
