"""Exports runs as logs of Inspect, where its package is installed."""

from pathlib import Path

from rubricem_agent.build.eval_scores import read_logs, read_scores, reload_benchmark
from rubricem_agent.evals.run.manifest import read_manifest
from rubricem_env.domain.errors import MissingExtraError, UsageError


def export_inspect_log(folder: Path, out: Path) -> None:
    """Write the run of a folder as one log.

    Raises:
        MissingExtraError: inspect-ai is not installed.
        UsageError: the file has neither of the two endings that Inspect reads.
    """
    if out.suffix not in (".eval", ".json"):
        raise UsageError(f"--out is {out}; Inspect reads files that end in .eval or .json.")
    try:
        from rubricem_agent.evals.inspect_export import write_inspect_log
    except ModuleNotFoundError as cause:
        raise MissingExtraError("inspect-ai", "eval", "a log for `inspect view`") from cause
    manifest = read_manifest(folder)
    write_inspect_log(
        out, reload_benchmark(folder, manifest), scores=read_scores(folder), answers=read_logs(folder).answers
    )
