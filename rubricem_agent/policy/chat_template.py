"""Splits a chat template at its messages, so that each message is encoded apart from the template's control tokens."""

from collections.abc import Callable
from typing import NamedTuple

from rubricem_agent.policy.base import Opening
from rubricem_env.domain.errors import ConfigError

ApplyTemplate = Callable[[Opening], str]
"""Renders system and user message up to where the assistant begins."""
# Placeholders in the private use area, which show where the template puts each message.
_SYSTEM = "\ue000system\ue001"
_USER = "\ue000user\ue001"


class TemplateParts(NamedTuple):
    """What a template writes itself: the only text of a prompt that may hold control tokens."""

    before: str
    """Before the system message."""
    between: str
    """Between the system message and the user's."""
    after: str
    """After the user's message, up to where the assistant begins."""


def split_template(apply: ApplyTemplate) -> TemplateParts:
    """The parts of a template.

    Raises:
        ConfigError: it drops or changes the messages.
    """
    before, system, rest = apply(Opening(_SYSTEM, _USER)).partition(_SYSTEM)
    between, user, after = rest.partition(_USER)
    if not (system and user):
        raise ConfigError("the chat template does not show the system and the user message; use one that does.")
    return TemplateParts(before, between, after)
