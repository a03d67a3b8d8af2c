"""Lines of a run's log as sentences for the terminal."""

from rich.console import Console
from rich.markup import escape

from rubricem_records.runs.log_lines import BenchmarkLine, EvaluationLine, LogLine, StepLine, WarningLine


def show_line(line: LogLine, steps: int, console: Console) -> None:
    """Print one line of a run's log; a warning in yellow."""
    if isinstance(line, WarningLine):
        console.print(f"[yellow]{escape(line.warning)}[/]")
    else:
        console.print(describe_line(line, steps), highlight=False, markup=False, soft_wrap=True)


def describe_line(line: StepLine | EvaluationLine | BenchmarkLine, steps: int) -> str:
    """One line of the log as a sentence."""
    if isinstance(line, BenchmarkLine):
        return f"step {line.step}: {line.benchmark} {line.score:.3f} ({line.low:.3f} to {line.high:.3f})"
    if isinstance(line, EvaluationLine):
        scores = " ".join(f"{stage} {value:.2f}" for stage, value in line.held_out.items())
        by = "truth" if line.by == "truth" else "the judge"
        return f"step {line.step}: held-out questions, by {by}: {scores}; {line.valid:.0%} valid"
    what, by_stage = ("true", line.true) if line.true else ("judged", line.judged)
    scores = " ".join(f"{stage} {_number(score)}" for stage, score in by_stage.items())
    kl = f" KL {line.task.kl:.4f}" if line.task else " nothing to learn from"
    return (
        f"step {line.step}/{steps} {line.encounter}: {what} {scores};{kl}; bank {line.bank}; utility "
        f"{_number(line.utility)}; {tokens_per_second(line):,.0f} tokens/s; {sum(line.seconds.values()):.1f} s"
    )


def tokens_per_second(line: StepLine) -> float:
    """Sampled tokens over the seconds of the step; 0 where they were not counted."""
    seconds = sum(line.seconds.values())
    return line.rollout_stats.policy_tokens / seconds if line.rollout_stats and seconds > 0 else 0.0


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
