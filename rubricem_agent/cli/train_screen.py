"""A run on the terminal while it trains: a bar and the latest steps, or a line a step where nobody watches."""

from collections import deque
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from rubricem_agent.learn.metrics_log import AlarmLine, ExamLine, StepLine
from rubricem_env.domain.stage import STAGES

_SHOWN = 8
"""Steps in the table."""


class TrainScreen:
    """Shows each line of a run's log as it comes; a context, so that the terminal is given back."""

    def __init__(self, console: Console, steps: int) -> None:
        self._console = console
        self._steps = steps
        self._latest: deque[StepLine] = deque(maxlen=_SHOWN)
        self._exam: ExamLine | None = None
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> "TrainScreen":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self, line: StepLine | ExamLine | AlarmLine) -> None:
        if isinstance(line, StepLine):
            self._latest.append(line)
        elif isinstance(line, ExamLine):
            self._exam = line
        if isinstance(line, AlarmLine):
            self._console.print(f"[yellow]{escape(line.alarm)}[/]")
        elif self._live is None:
            self._console.print(describe_line(line, self._steps), highlight=False, markup=False, soft_wrap=True)
        if self._live:
            self._live.update(self.render())

    def render(self) -> RenderableType:
        """The bar, the latest steps, the latest examination."""
        done = self._latest[-1].step if self._latest else 0
        bar = ProgressBar(total=self._steps, completed=done, width=60)
        parts: list[RenderableType] = [f"step {done} of {self._steps}", bar, render_steps(self._latest)]
        if self._exam is not None:
            parts.append(describe_line(self._exam, self._steps))
        return Group(*parts)


def render_steps(lines: "deque[StepLine]") -> Table:
    """A row a step: true scores by stage with the judge's beside them, and what training does to the policy."""
    stages = [f"{stage.value}\ntrue|judge" for stage in STAGES]
    table = Table("step", "", *stages, "KL", "entropy", "bank", "utility", "tokens/s", "s", box=None, pad_edge=False)
    for line in lines:
        scores = [f"{line.true.get(stage.value, 0):.2f}|{_number(line.judged.get(stage.value))}" for stage in STAGES]
        task = line.task
        kl, entropy = (_number(task.kl, 4), _number(task.entropy, 3)) if task else ("-", "-")
        rest = [kl, entropy, str(line.bank), _number(line.utility), f"{tokens_per_second(line):,.0f}"]
        table.add_row(str(line.step), line.encounter, *scores, *rest, f"{sum(line.seconds.values()):.1f}")
    return table


def describe_line(line: StepLine | ExamLine | AlarmLine, steps: int) -> str:
    """One line in words and numbers."""
    if isinstance(line, AlarmLine):
        return line.alarm
    if isinstance(line, ExamLine):
        scores = " ".join(f"{stage} {value:.2f}" for stage, value in line.held_out.items())
        return f"step {line.step}: held-out questions, by truth: {scores}; {line.valid:.0%} valid"
    scores = " ".join(f"{stage} {value:.2f}" for stage, value in line.true.items())
    kl = f" KL {line.task.kl:.4f}" if line.task else " nothing to learn from"
    return (
        f"step {line.step}/{steps} {line.encounter}: true {scores};{kl}; bank {line.bank}; utility "
        f"{_number(line.utility)}; {tokens_per_second(line):,.0f} tokens/s; {sum(line.seconds.values()):.1f} s"
    )


def tokens_per_second(line: StepLine) -> float:
    """Sampled tokens over the seconds of sampling and judging; 0 where they were not counted."""
    seconds = line.seconds.get("sample", 0.0)
    return line.habits.policy_tokens / seconds if line.habits and seconds > 0 else 0.0


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
