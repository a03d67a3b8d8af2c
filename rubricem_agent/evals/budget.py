"""The limit on what an evaluation may cost."""

from collections.abc import Iterable

from rubricem_env.llm.usage import Meter, SpendLimitReached


def check_budget(limit: float | None, *, spent_before: float, meters: Iterable[Meter]) -> None:
    """Check that another call may begin under the limit on what a run may cost, over all its parts and resumes.

    Calls in progress when the limit is reached are still paid for; none begins after it.

    Raises SpendLimitReached where it is reached; the message says how to resume.
    """
    spent = spent_before + sum(meter.total.dollars for meter in meters)
    if limit is not None and spent >= limit:
        raise SpendLimitReached(
            f"the run has cost ${spent:.2f}, and the budget is ${limit:.2f}. Everything so far is in "
            "the logs: run the same command with a larger --budget to resume."
        )
