"""Monitors a run after each step: it writes warnings into the log and stops a run that is lost."""

from collections.abc import Sequence
from pathlib import Path

from rubricem_agent.learn.collapse import WatchSettings, find_collapse
from rubricem_agent.learn.drift import DriftSettings, find_drift
from rubricem_env.domain.errors import RubricEMError
from rubricem_records.runs.log_lines import StepLine
from rubricem_records.runs.run_log import METRICS_FILE, append_line, read_log

_INVALID_STEPS = 3
"""A policy that begins may fail for a step or two."""


def find_divergence(lines: Sequence[StepLine]) -> str | None:
    """The held-out audit's warning of the latest step, unless the audit before it had one already."""
    audits = [line.audit for line in lines if line.audit is not None]
    if not audits or lines[-1].audit is None or not audits[-1].warning or (audits[1:] and audits[-2].warning):
        return None
    return f"step {lines[-1].step}: {audits[-1].warning}"


def find_no_attempt(lines: Sequence[StepLine]) -> str | None:
    """A warning where nothing can be learnt: a step without a token, or three steps in a row without a valid attempt.

    It is given at the step where that is so for the first time.
    """
    stats = [line.rollout_stats for line in lines if line.rollout_stats is not None]
    if not stats or lines[-1].rollout_stats is None:
        return None
    *before, last = stats
    if not last.policy_tokens and not (before and not before[-1].policy_tokens):
        return (
            f"step {lines[-1].step}: no attempt has a token of the policy. Check that the prompt fits into the model's "
            "context; `rubricem view` shows what was played."
        )
    num_invalid = next((number for number, each in enumerate(reversed(stats)) if each.valid), len(stats))
    if num_invalid != _INVALID_STEPS:
        return None
    return (
        f"step {lines[-1].step}: no attempt of the last {_INVALID_STEPS} steps follows the scaffold (0% valid), so "
        "there are no stages to learn from. Fine-tune the policy on traces first (`rubricem data`), or see with "
        "`rubricem view` what it writes."
    )


def watch_run(folder: Path, watch: WatchSettings, drift: DriftSettings | None = None) -> None:
    """Write the warnings of a run's latest step into its log, and stop a lost run.

    Without `drift`, drift is not looked for.

    Raises:
        RubricEMError: the run is lost.
    """
    steps = read_log(folder).steps
    # A drift that the step before had is in the log.
    drifted = None if drift is None or find_drift(steps[:-1], drift) else find_drift(steps, drift)
    lost = find_collapse(steps, watch)
    for warning in (drifted, find_divergence(steps), find_no_attempt(steps), lost):
        if warning:
            append_line(folder / METRICS_FILE, {"step": steps[-1].step, "warning": warning})
    if lost:
        raise RubricEMError(lost)
