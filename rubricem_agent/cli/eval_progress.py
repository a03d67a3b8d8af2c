"""How far a run is, on the error stream."""

from collections.abc import Iterator
from contextlib import contextmanager

from rubricem_agent.build.eval_plan import PlannedRun
from rubricem_agent.cli.terminal import Terminal
from rubricem_agent.evals.run.runner import Listener, Stage, Step


@contextmanager
def watch(planned: PlannedRun, terminal: Terminal) -> Iterator[Listener]:
    """Two bars, answers and verdicts; what was there before a resume does not count."""
    total = len(planned.manifest.inputs.ids) * planned.config.epochs
    with terminal.progress() as progress:
        bars = {stage: progress.add_task(stage.value, total=total) for stage in (Stage.ANSWERS, Stage.VERDICTS)}
        failed = dict.fromkeys(bars, 0)

        def note(step: Step) -> None:
            failed[step.stage] += bool(step.failure)
            said = f"{step.stage.value}, {failed[step.stage]} failed" if failed[step.stage] else step.stage.value
            progress.update(bars[step.stage], advance=1, description=said)

        yield note
