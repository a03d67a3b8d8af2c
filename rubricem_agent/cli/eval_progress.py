"""How far a run is, on the error stream."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rubricem_agent.build.eval_plan import PlannedRun
from rubricem_agent.evals.run.runner import Listener, Stage, Step


@contextmanager
def watch(planned: PlannedRun) -> Iterator[Listener]:
    """Two bars, answers and verdicts; what was there before a resume does not count."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    total = len(planned.manifest.inputs.ids) * planned.config.epochs
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bars = {
            stage: progress.add_task(stage.value, total=total, failed=0) for stage in (Stage.ANSWERS, Stage.VERDICTS)
        }
        failed = dict.fromkeys(bars, 0)

        def note(step: Step) -> None:
            failed[step.stage] += bool(step.failure)
            progress.update(bars[step.stage], advance=1, failed=failed[step.stage])

        yield note
