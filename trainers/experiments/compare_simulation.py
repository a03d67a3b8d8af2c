"""Compares the simulation with a run: times come from its first steps, its later steps are predicted.

    python -m trainers.experiments.compare_simulation runs/local_almanac
    python -m trainers.experiments.compare_simulation runs/small --of runs/large      another run, of another size

A run's log says how many tokens the policy wrote and how long sampling, reflecting and updating took. The engine's speed
and the times of both phases follow from the first cycle of the curriculum, without the very first step, in which every
process warms up; the later cycles are simulated from these alone. Of another run only its size is used: questions,
attempts, window and whether it reflects, from its settings.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.learn.metrics import StepLine, read_log
from rubricem_agent.viewer.logs import read_run
from rubricem_env.domain.errors import ConfigError
from trainers.experiments.step_simulation import Scenario, average, simulate
from trainers.settings import run_command
from trainers.verl_backend.planning.estimate import PhaseTimes

_LOCAL, _VERL = "sample", "gen"
"""The time of sampling in the log of the local trainer, and of a run on veRL."""
_REFLECT = "reflect"
"""In the local trainer: sampling and judging reflections. On veRL nothing waits for these, and this is Phase A."""
_NOT_UPDATE = ("step", "save_checkpoint")
"""The whole step, and what is not simulated. All other times belong to the update."""


class StepSeconds(NamedTuple):
    """Seconds of an average step."""

    sample: float
    reflect: float
    update: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print. A user error gives exit code 2 and one sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.experiments.compare_simulation", description="Compare the simulation with a run."
    )
    parser.add_argument("run", type=Path, help="the folder of a run, with its metrics.jsonl")
    parser.add_argument("--of", type=Path, metavar="RUN", help="predict another run, of another size, from this one")
    parser.add_argument("--questions", type=int, help="of a step; default: from the run's settings")
    parser.add_argument("--attempts", type=int, help="per question; default: likewise")
    parser.add_argument("--window", type=int, help="default: likewise")
    chosen = parser.parse_args(arguments)

    def compare() -> None:
        scenario = read_scenario(chosen.run, questions=chosen.questions, attempts=chosen.attempts, window=chosen.window)
        others, other = (read_log(chosen.of).steps, read_scenario(chosen.of)) if chosen.of else (None, None)
        measured, predicted = predict_run(read_log(chosen.run).steps, scenario, others=others, other=other)
        rows = zip(
            (*StepSeconds._fields, "step"), (*measured, sum(measured)), (*predicted, sum(predicted)), strict=True
        )
        for name, real, simulated in rows:
            ratio = f"{simulated / real:.2f}" if real else "-"
            sys.stdout.write(f"{name:<8} measured {real:8.2f} s   predicted {simulated:8.2f} s   ratio {ratio}\n")

    return run_command("compare_simulation", compare)


def read_scenario(
    run: Path, *, questions: int | None = None, attempts: int | None = None, window: int | None = None
) -> Scenario:
    """The size of a run from its settings, unless it is given.

    Raises:
        ConfigError: the settings lack a number.
    """
    settings = read_run(run).settings
    sizes: list[int] = []
    for name, given in (("questions_per_step", questions), ("group_size", attempts), ("window", window)):
        value = settings.get(name) if given is None else given
        if not isinstance(value, int):
            raise ConfigError(
                f"the settings of {run} do not contain {name}; give --questions, --attempts and --window explicitly."
            )
        sizes.append(value)
    return Scenario(
        sizes[0],
        sizes[1],
        2 * sizes[2],
        layout="sync",
        window=sizes[2],
        has_lessons=bool(settings.get("meta_policy", True)),
        defers=False,
    )


def predict_run(
    lines: Sequence[StepLine],
    scenario: Scenario,
    *,
    others: Sequence[StepLine] | None = None,
    other: Scenario | None = None,
) -> tuple[StepSeconds, StepSeconds]:
    """The average step after the first cycle of the curriculum: measured, and predicted from the first cycle.

    With another run, its steps are predicted from this run's; the first cycle of each is left out.

    Raises:
        ConfigError: a run has fewer than two cycles, or a line lacks a number.
    """
    later = _after_first_cycle(lines, scenario)
    if others is None or other is None:
        warm_up = 1 if scenario.window > 1 else 0
        return _mean(later), predict(learn_times(lines[warm_up : 2 * scenario.window], scenario), scenario)
    times = learn_times(later, scenario)
    return _mean(_after_first_cycle(others, other)), predict(scaled(times, scenario, other), other)


def scaled(times: PhaseTimes, scenario: Scenario, other: Scenario) -> PhaseTimes:
    """The times of a step of another size: an update is proportional to its attempts, the engine's speed is the same."""
    attempts = other.questions * other.group_size / (scenario.questions * scenario.group_size)
    return times.model_copy(
        update={
            "task_seconds": times.task_seconds * attempts,
            "lesson_seconds": times.lesson_seconds * other.questions / scenario.questions,
            "longest_tokens": times.longest_tokens * max(1.0, attempts),
        }
    )


def predict(times: PhaseTimes, scenario: Scenario) -> StepSeconds:
    """An average step of one cycle."""
    seconds = average(simulate(times, scenario._replace(defers=False, steps=2 * scenario.window))).seconds
    update = seconds["trains on reflections"] + seconds["trains on rollouts"] + seconds["swaps"]
    return StepSeconds(seconds["waits for rollouts"], seconds["waits for reflections"], update)


def learn_times(lines: Sequence[StepLine], scenario: Scenario) -> PhaseTimes:
    """The times of a process that does one thing after the other, from some of its steps.

    Phase A is the time that an update with reflections takes beyond one without.
    """
    seconds = [_seconds(line) for line in lines]
    pairs = list(zip(lines, seconds, strict=True))
    written = sum(_written(line) for line in lines)
    speed = written / sum(one.sample for one in seconds)
    task = _average([one.update for line, one in pairs if line.reflection is None])
    both = [one.update for line, one in pairs if line.reflection is not None]
    reflecting = _average([one.reflect for line, one in pairs if line.encounter == "new"])
    return PhaseTimes(
        engine_speed=speed,
        sequence_speed=speed,
        written_tokens=written / len(lines) / (scenario.questions * scenario.group_size),
        longest_tokens=written,
        # One candidate per question stands for all of them: the engine has as much to do.
        reflection_tokens=reflecting * speed / scenario.questions,
        candidates=1,
        task_seconds=task,
        lesson_seconds=max(0.0, _average(both) - task),
    )


def _after_first_cycle(lines: Sequence[StepLine], scenario: Scenario) -> Sequence[StepLine]:
    """Whole cycles of the curriculum, without the first."""
    cycle = 2 * scenario.window
    if len(lines) < 2 * cycle:
        raise ConfigError(
            f"the log has {len(lines)} steps; one cycle of {cycle} to learn from and one to predict are needed."
        )
    return lines[cycle : len(lines) // cycle * cycle]


def _mean(lines: Sequence[StepLine]) -> StepSeconds:
    return StepSeconds(*map(_average, zip(*map(_seconds, lines), strict=True)))


def _average(numbers: Sequence[float]) -> float:
    """0 for none."""
    return sum(numbers) / len(numbers) if numbers else 0.0


def _seconds(line: StepLine) -> StepSeconds:
    named = next((name for name in (_LOCAL, _VERL) if line.seconds.get(name)), None)
    if named is None:
        raise ConfigError(f"step {line.step} of the log lacks the time of sampling ({_LOCAL} or {_VERL}).")
    reflect = line.seconds.get(_REFLECT, 0.0) if named == _LOCAL else 0.0
    total = sum(seconds for name, seconds in line.seconds.items() if name not in _NOT_UPDATE)
    return StepSeconds(line.seconds[named], reflect, total - line.seconds[named] - reflect)


def _written(line: StepLine) -> int:
    if line.habits is None:
        raise ConfigError(f"step {line.step} of the log lacks the number of tokens that the policy wrote (habits).")
    return line.habits.policy_tokens


if __name__ == "__main__":
    sys.exit(main())
