"""Stops a step that lost too many of its rollouts, or of its proposals of rubrics."""

from collections.abc import Sequence
from typing import Literal

from rubricem_env.domain.errors import JudgeError

Lost = Literal["rollouts", "proposals"]
_REASONS: dict[Lost, str] = {
    "rollouts": "a policy must not learn from the rest",
    "proposals": "rubrics would no longer follow what the policy does",
}


def refuse_outage(lost: Sequence[str], total: int, *, limit: float, way_out: str, of: Lost = "rollouts") -> None:
    """Stop a step of `total` rollouts or proposals that lost more than the share `limit`; `lost` has the reasons.

    Raises:
        JudgeError: the message counts them and quotes the first reason.
    """
    if len(lost) > limit * total:
        raise JudgeError(
            f"{len(lost)} of the step's {total} {of} were lost; more than {limit:.0%} stop the run, because "
            f"{_REASONS[of]}. First failure: {next(filter(None, lost), 'no detail')}. {way_out}"
        )
