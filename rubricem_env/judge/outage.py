"""Stops a step that lost too many of its rollouts."""

from collections.abc import Sequence

from rubricem_env.domain.errors import JudgeError


def refuse_outage(lost: Sequence[str], total: int, *, limit: float, way_out: str) -> None:
    """Stop a step of `total` rollouts that lost more than the share `limit`; `lost` has the reasons.

    Raises:
        JudgeError: the message counts them and quotes the first reason.
    """
    if len(lost) > limit * total:
        raise JudgeError(
            f"{len(lost)} of the step's {total} rollouts were lost; more than {limit:.0%} stop the run, because "
            "a policy "
            f"must not learn from the rest. First failure: {next(filter(None, lost), 'no detail')}. {way_out}"
        )
