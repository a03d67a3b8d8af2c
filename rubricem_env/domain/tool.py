"""A call that the policy makes, and what comes back."""

from enum import StrEnum

from rubricem_env.domain.base import Frozen, Text


class ToolStatus(StrEnum):
    """How a call ended. Only the last four are errors: finding nothing is an answer."""

    OK = "ok"
    EMPTY = "empty"
    ERROR = "error"
    BLOCKED = "blocked"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"

    @property
    def is_error(self) -> bool:
        return self not in (ToolStatus.OK, ToolStatus.EMPTY)


class ToolCall(Frozen):
    """A tool by its canonical name, the query, and the parameters as written."""

    name: Text
    query: Text
    parameters: tuple[tuple[Text, Text], ...] = ()
    """Sorted by name, so that equal calls are equal values."""
    written_name: Text = ""
    """What the policy wrote, where it differs from the canonical name; repaired on the way in."""

    @property
    def identity(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """Two calls with the same identity ask the same thing: case and spacing of the query do not count."""
        return (self.name, " ".join(self.query.casefold().split()), self.parameters)


class Snippet(Frozen):
    """One piece of evidence as a backend returns it, before it is numbered and defused."""

    text: Text
    title: Text = ""
    url: Text = ""


class ToolResult(Frozen):
    """What a backend answers: a summary or none, snippets or none, and how it went."""

    status: ToolStatus
    summary: Text = ""
    snippets: tuple[Snippet, ...] = ()
    message: Text = ""
    """One sentence for the policy where the status is not ok."""
    executed: ToolCall | None = None
    """The call as executed, where it had to be repaired: a near-miss name, a parameter out of form."""
