"""What the almanac raises when it is asked for something that it cannot make or read."""

from rubricem_env.domain.errors import UsageError


class WorldError(UsageError):
    """A caller's mistake: the message names what, where, the rule, the value and the way out."""
