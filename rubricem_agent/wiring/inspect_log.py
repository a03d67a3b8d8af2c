"""Exports a run as a log of Inspect."""

from pathlib import Path

from rubricem_agent.wiring.models import requires_extra
from rubricem_agent.wiring.stored_runs import read_logs, reload_benchmark
from rubricem_env.domain.errors import UsageError
from rubricem_records.evaluations.manifest import read_manifest
from rubricem_records.evaluations.scores import read_scores


def export_inspect_log(folder: Path, out: Path) -> None:
    """Write a run as one log that Inspect reads.

    Raises:
        MissingExtraError: inspect-ai is not installed.
        UsageError: the file does not end in .eval or .json.
    """
    if out.suffix not in (".eval", ".json"):
        raise UsageError(f"--out is {out}; Inspect reads files that end in .eval or .json.")
    with requires_extra("eval", "a log for `inspect view`", package="inspect-ai"):
        from rubricem_agent.evals.inspect_export import write_inspect_log
    loaded = reload_benchmark(folder, read_manifest(folder))
    write_inspect_log(out, loaded, scores=read_scores(folder), answers=read_logs(folder).answers)
