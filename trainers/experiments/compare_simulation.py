"""Holds the simulation against a run: times taken from its first steps, its later steps predicted and compared.

    python -m trainers.experiments.compare_simulation runs/local_almanac
    python -m trainers.experiments.compare_simulation runs/small --of runs/large      another run, of another size

A run's log says how many tokens the policy wrote and how long sampling, reflecting and updating took. From the first
turn of the curriculum follow the engine's speed and the times of both phases; the later ones are then simulated from
those alone. The very first step, in which every process warms up, teaches nothing where there are others like it. Of
another run nothing is taken but its size: questions, attempts, window and whether it reflects, as its settings say.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rubricem_agent.learn.curriculum import Encounter
from rubricem_agent.learn.metrics import StepLine, read_log
from rubricem_agent.viewer.logs import read_run
from rubricem_env.domain.errors import ConfigError, RubricEMError
from trainers.experiments.step_simulation import Doing, Scenario, average, simulate
from trainers.verl_backend.planning.estimate import PhaseTimes

_LOCAL, _VERL = "sample", "gen"
"""What sampling is called in the log of the local trainer, and of a run on veRL."""
_REFLECT = "reflect"
"""Sampling and judging reflections, in the local trainer's; on veRL that is nobody's wait, and this is Phase A."""
_NO_PART = ("step", "save_checkpoint")
"""The whole, and what is not simulated. All other times belong to the update."""


class Account(NamedTuple):
    """Seconds of an average step."""

    sample: float
    reflect: float
    update: float

    @property
    def total(self) -> float:
        return sum(self)


class Held(NamedTuple):
    """An average step of the later ones, as it was and as it was predicted."""

    measured: Account
    predicted: Account


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare and print; 2 and one sentence on stderr for a mistake."""
    parser = argparse.ArgumentParser(
        prog="python -m trainers.experiments.compare_simulation", description="Hold the simulation against a run."
    )
    parser.add_argument("run", type=Path, help="the folder of a run, with its metrics.jsonl")
    parser.add_argument("--of", type=Path, metavar="RUN", help="predict another run, of another size, from this one")
    parser.add_argument("--questions", type=int, help="of a step; default: as the run's settings say")
    parser.add_argument("--attempts", type=int, help="at a question; likewise")
    parser.add_argument("--window", type=int, help="likewise")
    chosen = parser.parse_args(arguments)
    try:
        scenario = read_scenario(chosen.run, questions=chosen.questions, attempts=chosen.attempts, window=chosen.window)
        lines = read_log(chosen.run).steps
        if chosen.of is None:
            held = hold(lines, scenario)
        else:
            held = hold_other(lines, scenario, read_log(chosen.of).steps, read_scenario(chosen.of))
    except RubricEMError as mistake:
        sys.stderr.write(f"hold: {mistake}\n")
        return 2
    for name, measured, predicted in zip((*Account._fields, "step"), *map(_cells, held), strict=True):
        ratio = f"{predicted / measured:.2f}" if measured else "-"
        sys.stdout.write(f"{name:<8} measured {measured:8.2f} s   predicted {predicted:8.2f} s   ratio {ratio}\n")
    return 0


def read_scenario(
    run: Path, *, questions: int | None = None, attempts: int | None = None, window: int | None = None
) -> Scenario:
    """The size of a run by its settings, unless it is given.

    Raises:
        ConfigError: the settings do not say it.
    """
    settings = read_run(run).settings
    asked = {"questions_per_step": questions, "group_size": attempts, "window": window}
    found: list[int] = []
    for name, given in asked.items():
        value = settings.get(name) if given is None else given
        if not isinstance(value, int):
            raise ConfigError(
                f"the settings of {run} do not say {name}; give --questions, --attempts and --window by hand."
            )
        found.append(value)
    number, size, span = found
    return Scenario(
        number,
        size,
        2 * span,
        layout="sync",
        window=span,
        has_lessons=bool(settings.get("meta_policy", True)),
        defers=False,
    )


def hold_other(lines: Sequence[StepLine], scenario: Scenario, others: Sequence[StepLine], other: Scenario) -> Held:
    """The steps of another run against what those of this one predict of them; the first turn of each is left out.

    Raises:
        ConfigError: one of them has no two turns, or a line does not say what is needed.
    """
    times = learn_times(_after_first_turn(lines, scenario), scenario)
    return Held(_mean(_after_first_turn(others, other)), predict(scaled(times, scenario, other), other))


def scaled(times: PhaseTimes, scenario: Scenario, other: Scenario) -> PhaseTimes:
    """The times of a step of another size: an update takes as long as it has attempts, the engine is as fast as it is."""
    attempts = other.questions * other.group_size / (scenario.questions * scenario.group_size)
    return times.model_copy(
        update={
            "task_seconds": times.task_seconds * attempts,
            "lesson_seconds": times.lesson_seconds * other.questions / scenario.questions,
            "longest_tokens": times.longest_tokens * max(1.0, attempts),
        }
    )


def predict(times: PhaseTimes, scenario: Scenario) -> Account:
    """An average step of one turn."""
    found = average(simulate(times, scenario._replace(defers=False, steps=2 * scenario.window))).seconds
    update = found[Doing.PHASE_A] + found[Doing.PHASE_B] + found[Doing.SWAP]
    return Account(found[Doing.FOR_ROLLOUTS], found[Doing.FOR_REFLECTIONS], update)


def hold(lines: Sequence[StepLine], scenario: Scenario) -> Held:
    """The steps after the first turn of the curriculum against what that turn predicts of them.

    Raises:
        ConfigError: there are no two turns, or a line does not say what is needed.
    """
    later = _after_first_turn(lines, scenario)
    warm = 1 if scenario.window > 1 else 0
    times = learn_times(lines[warm : 2 * scenario.window], scenario)
    return Held(_mean(later), predict(times, scenario))


def _after_first_turn(lines: Sequence[StepLine], scenario: Scenario) -> Sequence[StepLine]:
    """Whole turns of the curriculum, without the first."""
    turn = 2 * scenario.window
    if len(lines) < 2 * turn:
        raise ConfigError(
            f"the log has {len(lines)} steps; one turn of {turn} to learn from and one to predict are needed."
        )
    return lines[turn : len(lines) // turn * turn]


def _mean(lines: Sequence[StepLine]) -> Account:
    accounts = [_account(line) for line in lines]
    return Account(*(sum(part) / len(accounts) for part in zip(*accounts, strict=True)))


def learn_times(lines: Sequence[StepLine], scenario: Scenario) -> PhaseTimes:
    """The times of a process that does one thing after the other, from some of its steps.

    Phase A is what an update with reflections takes beyond one without.
    """
    accounts = [_account(line) for line in lines]
    written = sum(_written(line) for line in lines)
    speed = written / sum(account.sample for account in accounts)
    alone = [account.update for line, account in zip(lines, accounts, strict=True) if line.reflection is None]
    both = [account.update for line, account in zip(lines, accounts, strict=True) if line.reflection is not None]
    task = sum(alone) / len(alone) if alone else 0.0
    new = [account.reflect for line, account in zip(lines, accounts, strict=True) if line.encounter == Encounter.NEW]
    reflecting = sum(new) / len(new) if new else 0.0
    attempts = scenario.questions * scenario.group_size
    return PhaseTimes(
        engine_speed=speed,
        sequence_speed=speed,
        written_tokens=written / len(lines) / attempts,
        longest_tokens=written,
        # One candidate for each question stands for all of them: the engine has as much to do.
        reflection_tokens=reflecting * speed / scenario.questions,
        candidates=1,
        task_seconds=task,
        lesson_seconds=max(0.0, sum(both) / len(both) - task) if both else 0.0,
    )


def _account(line: StepLine) -> Account:
    named = next((name for name in (_LOCAL, _VERL) if line.seconds.get(name)), None)
    if named is None:
        raise ConfigError(f"step {line.step} of the log does not say how long sampling took ({_LOCAL} or {_VERL}).")
    reflect = line.seconds.get(_REFLECT, 0.0) if named == _LOCAL else 0.0
    parts = sum(seconds for name, seconds in line.seconds.items() if name not in _NO_PART)
    return Account(line.seconds[named], reflect, parts - line.seconds[named] - reflect)


def _written(line: StepLine) -> int:
    if line.habits is None:
        raise ConfigError(f"step {line.step} of the log does not say how many tokens the policy wrote (habits).")
    return line.habits.policy_tokens


def _cells(account: Account) -> tuple[float, ...]:
    return (*account, account.total)


if __name__ == "__main__":
    sys.exit(main())
