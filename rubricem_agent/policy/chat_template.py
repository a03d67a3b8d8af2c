"""Splits a chat template at its messages, so that each message is encoded apart from the template's control tokens."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from rubricem_agent.policy.base import Opening
from rubricem_env.domain.errors import ConfigError


class ChatMessage(NamedTuple):
    """One message that a template renders."""

    role: Literal["system", "user", "assistant"]
    content: str


ApplyTemplate = Callable[[Sequence[ChatMessage]], str]
"""Renders messages up to where the assistant begins; raises ConfigError where the template refuses them."""
# Placeholders in the private use area, which show where the template puts each message.
_SYSTEM = "\ue000system\ue001"
_USER = "\ue000user\ue001"
_TURN = "\ue000turn\ue001"
_NEXT = "\ue000next\ue001"


class TemplateParts(NamedTuple):
    """What a template writes itself: the only text of a prompt that may hold control tokens."""

    before: str
    """Before the system message."""
    between: str
    """Between the system message and the user's."""
    after: str
    """After the user's message, up to where the assistant begins."""


class FollowUp(NamedTuple):
    """What a template writes around a user's message that follows a turn of the assistant."""

    before: str
    """From the end of the turn to the message: what ends the turn, then the header of the message."""
    after: str
    """After the message, up to where the assistant begins."""


def opening_messages(opening: Opening) -> tuple[ChatMessage, ChatMessage]:
    """The first messages of a conversation."""
    return ChatMessage("system", opening.system), ChatMessage("user", opening.user)


def split_template(apply: ApplyTemplate) -> TemplateParts:
    """The parts of a template.

    Raises:
        ConfigError: it drops or changes the messages.
    """
    before, system, rest = apply(opening_messages(Opening(_SYSTEM, _USER))).partition(_SYSTEM)
    between, user, after = rest.partition(_USER)
    if not (system and user):
        raise ConfigError("the chat template does not show the system and the user message; use one that does.")
    return TemplateParts(before, between, after)


def split_follow_up(apply: ApplyTemplate) -> FollowUp | None:
    """The parts of a template around a later message of the user; None where it has no such message."""
    try:
        return read_follow_up(apply(FOLLOWED))
    except ConfigError:
        return None


FOLLOWED = (ChatMessage("user", _USER), ChatMessage("assistant", _TURN), ChatMessage("user", _NEXT))
"""The messages that `read_follow_up` wants rendered."""


def read_follow_up(rendered: str) -> FollowUp | None:
    """The parts of a template in what it made of `FOLLOWED`; None where a message is not shown."""
    _, turn, rest = rendered.partition(_TURN)
    before, following, after = rest.partition(_NEXT)
    return FollowUp(before, after) if turn and following else None
