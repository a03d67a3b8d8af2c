"""Monitors a run after each step: it writes warnings into the log and stops a run that is lost."""

from collections.abc import Sequence
from pathlib import Path

from rubricem_agent.learn.collapse import WatchSettings, find_collapse
from rubricem_agent.learn.drift import DriftSettings, find_drift
from rubricem_env.domain.errors import RubricEMError
from rubricem_records.runs.log_lines import StepLine
from rubricem_records.runs.run_log import METRICS_FILE, append_line, read_log


def find_divergence(lines: Sequence[StepLine]) -> str | None:
    """The held-out audit's warning of the latest step, unless the audit before it had one already."""
    audits = [line.audit for line in lines if line.audit is not None]
    if not audits or lines[-1].audit is None or not audits[-1].warning or (audits[1:] and audits[-2].warning):
        return None
    return f"step {lines[-1].step}: {audits[-1].warning}"


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
    for warning in (drifted, find_divergence(steps), lost):
        if warning:
            append_line(folder / METRICS_FILE, {"step": steps[-1].step, "warning": warning})
    if lost:
        raise RubricEMError(lost)
