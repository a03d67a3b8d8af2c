"""Simulates the steps of a config's run: what binds a step, what the judge hides, what deferral saves.

    python -m research.simulate verl_rubricem_8b [--nodes 2 4] [--json]
    python -m research.simulate verl_rubricem_8b --times task_seconds=80 swap_seconds=12

Times are estimated from shapes and assumptions; replace them with measured ones by --times.

It is an event simulation of rollouts, judge, reflections and updates as tasks that wait for each other. A rollout
alternates between the engine and its tools. When the rollouts of a group are done, the judge proposes rubrics, then
scores each rollout. Reflections on a new question follow: the same engine samples them, and they are judged. The
trainer waits for its step's judgements, trains on the finished reflections (Phase A), then on the rollouts (Phase B).
The tasks are asyncio's, on an event loop whose clock jumps to the next timer.

Deliberately absent: failures and retries, the validation loop, checkpoints.
"""

import argparse
import asyncio
import heapq
import itertools
import json
import selectors
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

from rubricem_agent.learn.curriculum import cycle_steps
from rubricem_env.domain.errors import ConfigError
from trainers.settings import run_command
from trainers.verl_backend.planning.estimate import PhaseTimes, estimate_times
from trainers.verl_backend.planning.plan import NODES
from trainers.verl_backend.planning.run_shape import (
    Assumptions,
    Layout,
    RunShape,
    find_model_shape,
    read_run_file,
    read_run_shape,
    with_changes,
)

Result = TypeVar("Result")


class _Jump(selectors.SelectSelector):
    """Advances the time where an event loop would wait."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("every task of the simulation waits for another one.")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def run_virtually(main: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine in virtual time, which starts at 0."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def _now() -> float:
    return asyncio.get_running_loop().time()


DOINGS = (
    "waits for rollouts",
    "waits for the judge",
    "waits for reflections",
    "trains on reflections",
    "trains on rollouts",
    "swaps",
)
"""What the trainer does or waits for."""


class Engine:
    """Serves requests for tokens, as many at once as it has seats; the others wait.

    All running requests have the same speed: an equal share of the engine's, or a single sequence's where that is less.
    So one count of served tokens determines when each is done, however often the speed changes.
    """

    def __init__(self, *, speed: float, fastest: float, seats: int) -> None:
        """`speed` is tokens a second in all, `fastest` those of one request at most."""
        self._speed, self._fastest = speed, fastest
        self._seats = asyncio.Semaphore(seats)
        self._served, self._counted_at = 0.0, 0.0
        self._order = itertools.count()
        self._ends: list[tuple[float, int, asyncio.Future[None]]] = []
        self._is_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._busy = 0.0

    async def serve(self, tokens: float) -> None:
        """Sample so many tokens."""
        async with self._seats:
            self._count()
            done = asyncio.get_running_loop().create_future()
            heapq.heappush(self._ends, (self._served + tokens, next(self._order), done))
            self._plan()
            await done

    def pause(self, *, ends: bool = False) -> None:
        """Requests keep their tokens and get no more, until the pause ends."""
        self._count()
        self._is_paused = not ends
        self._plan()

    def busy_seconds(self) -> float:
        """Those in which it has sampled."""
        self._count()
        return self._busy

    def _rate(self) -> float:
        """Tokens a second of each request."""
        return 0.0 if self._is_paused or not self._ends else min(self._fastest, self._speed / len(self._ends))

    def _count(self) -> None:
        passed, self._counted_at = _now() - self._counted_at, _now()
        self._served += self._rate() * passed
        self._busy += passed if self._rate() else 0.0

    def _plan(self) -> None:
        """Schedule the next end in the place of an earlier plan."""
        if self._timer is not None:
            self._timer.cancel()
        if self._rate():
            left = max(0.0, (self._ends[0][0] - self._served) / self._rate())
            self._timer = asyncio.get_running_loop().call_later(left, self._finish)

    def _finish(self) -> None:
        self._count()
        end, _, done = heapq.heappop(self._ends)
        self._served = max(self._served, end)
        self._plan()
        done.set_result(None)


class Scenario(NamedTuple):
    """How the parts of a step are arranged."""

    questions: int
    group_size: int
    steps: int
    layout: Layout = "async"
    ahead: int = 1
    """Steps that are sampled before their turn, except where steps come in turn."""
    has_lessons: bool = True
    """Whether there is a meta-policy."""
    defers: bool = True
    """Train on reflections one step late instead of waiting for them."""
    takes_finished: bool = False
    """Train on the groups that are judged first, of whichever step, as veRL's replay buffer gives them; else each step
    waits for its own.
    """
    longest_first: bool = False
    """Start a step with the questions whose attempts will be longest, as if that were known."""
    in_lockstep: bool = False
    """Judge a step when all its rollouts are done, and score when all its rubrics are proposed, as in the paper."""
    window: int = 3
    reflects_always: bool = False
    """Reflect on the questions of every step: at repeats too, or where there are none."""
    seed: int = 0


Draw = Callable[[float], float]
"""Draws a length or time with the given mean."""


def attempt_draws(spread: float, seed: Sequence[int]) -> Draw:
    """Log-normal draws of one attempt; the mean itself without spread.

    Each attempt has its own generator, so that two scenarios draw the same lengths and times.
    """
    rng = np.random.default_rng(seed)
    return lambda mean: mean * float(rng.lognormal(-spread * spread / 2, spread)) if spread else mean


class SimulatedStep:
    """One step: the seconds booked on it, and the tasks of its questions."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(DOINGS, 0.0)
        self.engine_seconds = 0.0
        """Of the step, those in which the engine sampled."""
        self.judge_span = 0.0
        """From the first call to the judge about this step's questions to the last."""
        self.sampled, self.proposed, self.judged, self.reflected = (list[asyncio.Task[None]]() for _ in range(4))
        self.judge_began = 0.0

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def average(steps: Sequence[SimulatedStep]) -> SimulatedStep:
    """The mean over some steps, which should be whole cycles of the curriculum; it has no tasks."""
    mean = SimulatedStep()
    mean.seconds = {doing: sum(step.seconds[doing] for step in steps) / len(steps) for doing in DOINGS}
    mean.engine_seconds = sum(step.engine_seconds for step in steps) / len(steps)
    mean.judge_span = sum(step.judge_span for step in steps) / len(steps)
    return mean


class SimulatedGroup(NamedTuple):
    """The tasks of one group."""

    sampled: Sequence[asyncio.Task[None]]
    judged: asyncio.Task[None]

    @property
    def is_sampled(self) -> bool:
        return all(task.done() for task in self.sampled)

    @property
    def is_judged(self) -> bool:
        return self.judged.done()

    @property
    def unfinished(self) -> list[asyncio.Task[None]]:
        return [task for task in (*self.sampled, self.judged) if not task.done()]


class _Simulation:
    """One run of a scenario."""

    def __init__(self, times: PhaseTimes, scenario: Scenario) -> None:
        self._times = times
        self._scenario = scenario
        self._engine = Engine(speed=times.engine_speed, fastest=times.sequence_speed, seats=times.engine_seats)
        self._judge = asyncio.Semaphore(times.judge_seats)
        self._steps: dict[int, SimulatedStep] = {}
        self._waiting: list[SimulatedGroup] = []
        """The groups that were launched and not trained on, in the order of launching."""
        self._lessons = 0

    async def run(self) -> tuple[SimulatedStep, ...]:
        """The steps, one after the other."""
        scenario, times = self._scenario, self._times
        ahead = 0 if scenario.layout == "sync" else scenario.ahead
        for number in range(1, scenario.steps + 1):
            for upcoming in range(number, min(scenario.steps, number + ahead) + 1):
                if upcoming not in self._steps:
                    self._steps[upcoming] = self._launch(upcoming)
            step = self._steps[number]
            engine_before = self._engine.busy_seconds()
            await self._book(step, "waits for rollouts", self._enough(step, lambda group: group.is_sampled))
            await self._book(step, "waits for the judge", self._enough(step, lambda group: group.is_judged))
            taken = [group for group in self._waiting if group.is_judged and self._is_candidate(step, group)]
            taken = taken[: scenario.questions]
            self._waiting = [group for group in self._waiting if group not in taken]
            if not scenario.defers:
                await self._book(step, "waits for reflections", asyncio.gather(*step.reflected))
            if scenario.layout != "separate":
                self._engine.pause()
            ready, self._lessons = self._lessons, 0
            lessons = asyncio.sleep(times.lesson_seconds * ready / scenario.questions)
            await self._book(step, "trains on reflections", lessons)
            await self._book(step, "trains on rollouts", asyncio.sleep(times.task_seconds))
            self._engine.pause()
            await self._book(step, "swaps", asyncio.sleep(times.swap_seconds))
            self._engine.pause(ends=True)
            step.engine_seconds = self._engine.busy_seconds() - engine_before
        return tuple(self._steps.values())

    def _is_candidate(self, step: SimulatedStep, group: SimulatedGroup) -> bool:
        """Whether a step may train on the group."""
        return self._scenario.takes_finished or group.judged in step.judged

    async def _enough(self, step: SimulatedStep, is_ready: Callable[[SimulatedGroup], bool]) -> None:
        """Wait until as many groups are ready as a step trains on."""
        groups = [group for group in self._waiting if self._is_candidate(step, group)]
        while sum(map(is_ready, groups)) < self._scenario.questions:
            pending = [task for group in groups if not is_ready(group) for task in group.unfinished]
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)

    async def _book(self, step: SimulatedStep, doing: str, work: Awaitable[object]) -> None:
        began = _now()
        await work
        step.seconds[doing] += _now() - began

    def _launch(self, number: int) -> SimulatedStep:
        """Start the questions of a step."""
        step, start = SimulatedStep(), asyncio.get_running_loop().create_task
        for question in self._order_of_questions(number):
            draws = self._draws(number, question)
            group = [start(self._rollout(draw)) for draw in draws]
            step.sampled += group
            proposed = start(self._propose(step, group, draws[0]))
            step.proposed.append(proposed)
            judged = start(self._score(step, proposed, draws))
            step.judged.append(judged)
            self._waiting.append(SimulatedGroup(group, judged))
            # New questions fill the first window of every two.
            window = self._scenario.window
            is_due = self._scenario.reflects_always or (number - 1) % (2 * window) < window
            if self._scenario.has_lessons and is_due:
                step.reflected.append(start(self._reflect(judged, draws[0])))
        return step

    def _draws(self, number: int, question: int) -> list[Draw]:
        seeds = ((self._scenario.seed, number, question, attempt) for attempt in range(self._scenario.group_size))
        return [attempt_draws(self._times.spread, seed) for seed in seeds]

    def _order_of_questions(self, number: int) -> Sequence[int]:
        """The order in which a step's questions begin."""
        questions = range(self._scenario.questions)
        if not self._scenario.longest_first:
            return questions
        written = self._times.written_tokens
        return sorted(questions, key=lambda question: -max(draw(written) for draw in self._draws(number, question)))

    async def _rollout(self, draw: Draw) -> None:
        turns = int(min(self._times.most_searches, round(draw(self._times.searches)))) + 1
        tokens = min(self._times.longest_tokens, draw(self._times.written_tokens))
        for turn in range(turns):
            await self._engine.serve(tokens / turns)
            if turn < turns - 1:
                await asyncio.sleep(draw(self._times.tool_seconds))

    async def _propose(self, step: SimulatedStep, group: Sequence[asyncio.Task[None]], draw: Draw) -> None:
        await asyncio.gather(*(step.sampled if self._scenario.in_lockstep else group))
        step.judge_began = step.judge_began or _now()
        await self._call_judge(draw(self._times.propose_seconds))

    async def _score(self, step: SimulatedStep, proposed: asyncio.Task[None], draws: Sequence[Draw]) -> None:
        await asyncio.gather(*(step.proposed if self._scenario.in_lockstep else [proposed]))
        await asyncio.gather(*(self._call_judge(draw(self._times.score_seconds)) for draw in draws))
        step.judge_span = _now() - step.judge_began

    async def _reflect(self, judged: asyncio.Task[None], draw: Draw) -> None:
        await judged
        lengths = [draw(self._times.reflection_tokens) for _ in range(self._times.candidates)]
        await asyncio.gather(*(self._engine.serve(tokens) for tokens in lengths))
        await self._call_judge(draw(self._times.reflect_seconds))
        self._lessons += 1

    async def _call_judge(self, seconds: float) -> None:
        """One call to the judge, when a seat is free."""
        async with self._judge:
            await asyncio.sleep(seconds)


def simulate(times: PhaseTimes, scenario: Scenario) -> tuple[SimulatedStep, ...]:
    """The steps of a scenario."""
    return run_virtually(_Simulation(times, scenario).run())


_COLUMNS = 120


VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "in turn, in lockstep, waits for reflections": {"layout": "sync", "in_lockstep": True, "defers": False},
        "in turn, in lockstep, deferred": {"layout": "sync", "in_lockstep": True},
        "in turn, deferred": {"layout": "sync"},
        "a step ahead, waits for reflections": {"layout": "async", "defers": False},
        "a step ahead, deferred": {"layout": "async"},
        "two steps ahead, deferred": {"layout": "async", "ahead": 2},
        "a step ahead, longest questions first": {"layout": "async", "longest_first": True},
        "a step ahead, takes the groups that are done": {"layout": "async", "takes_finished": True},
        "two steps ahead, takes the groups that are done": {"layout": "async", "ahead": 2, "takes_finished": True},
        "a step ahead, no meta-policy": {"layout": "async", "has_lessons": False},
        "half sample, half train, deferred": {"layout": "separate"},
        "half and half, two steps ahead": {"layout": "separate", "ahead": 2},
    }
)
"""Ways to arrange a step, from the plainest to that of `rubricem_async`, and the layout of the paper's codebase."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate and print. A user error gives exit code 2 and one sentence on stderr."""
    chosen = _parser().parse_args(arguments)

    def run() -> None:
        files = [read_run_file(chosen.config, [*chosen.changes, f"++trainer.nnodes={nodes}"]) for nodes in chosen.nodes]
        assumed = with_changes(Assumptions(), chosen.assume)
        rows = [row for file in files for row in simulate_variants(read_run_shape(file), assumed, chosen=chosen)]
        if chosen.json:
            sys.stdout.write(json.dumps(rows, allow_nan=False) + "\n")
        else:
            _show(rows, Console(width=_COLUMNS, highlight=False, file=sys.stdout))

    return run_command("simulate", run)


def simulate_variants(shape: RunShape, assumed: Assumptions, *, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The average step of every variant, as JSON values; `chosen` has `steps`, `seed` and `times`.

    The first cycle of the curriculum, which starts from nothing, is simulated and not counted.

    Raises:
        ConfigError: a time is refused, or there are too few steps for a whole cycle after the first.
    """
    settings = shape.settings
    cycle = cycle_steps(settings.window, repeats=settings.repeats)
    counted = chosen.steps // cycle * cycle
    if counted < 2 * cycle:
        raise ConfigError(f"--steps is {chosen.steps}; whole cycles are counted, after the first: {2 * cycle} or more.")
    model = find_model_shape(shape.model)
    reflects_always = shape.reflected == shape.questions
    common = {
        "window": settings.window,
        "reflects_always": reflects_always,
        "seed": chosen.seed,
        "layout": shape.layout,
    }
    for name, changes in VARIANTS.items():
        scenario = Scenario(shape.questions, shape.group_size, counted, **{**common, **changes})
        scenario = scenario._replace(has_lessons=scenario.has_lessons and settings.meta_policy)
        times = estimate_times(shape, model, assumed, layout=scenario.layout)
        step = average(simulate(with_changes(times, chosen.times, noun="time"), scenario)[cycle:])
        yield {
            "gpus": shape.gpus,
            "variant": name,
            "step_seconds": round(step.total, 1),
            "parts": {doing: round(seconds, 1) for doing, seconds in step.seconds.items()},
            "judge_span": round(step.judge_span, 1),
            "judge_hidden": round(max(0.0, step.judge_span - step.seconds["waits for the judge"]), 1),
            "engine_share": round(step.engine_seconds / step.total, 3),
            "binds": max(step.seconds, key=lambda doing: step.seconds[doing]),
        }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m research.simulate", description="Simulate the steps of a run.")
    parser.add_argument("config", type=Path, help="a YAML file, such as configs/verl_rubricem_8b.yaml")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="changes of the config")
    parser.add_argument("--nodes", type=int, nargs="+", default=list(NODES), help="default: 2 4")
    parser.add_argument("--steps", type=int, default=24, help="default: 24")
    parser.add_argument("--seed", type=int, default=0)
    changes: dict[str, Any] = {"nargs": "+", "default": [], "metavar": "KEY=VALUE"}
    parser.add_argument("--assume", **changes, help="numbers that do not follow from shapes")
    parser.add_argument("--times", **changes, help="measured times instead of estimates")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _show(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    headings = ("step", "rollouts", "judge", "lessons", "A", "B", "swap", "judge works", "hidden", "engine")
    for gpus in dict.fromkeys(row["gpus"] for row in rows):
        table = Table(f"[bold]{gpus} GPUs[/bold], seconds", *headings, box=None, pad_edge=False)
        for column in table.columns[1:]:
            column.justify = "right"
        for row in (row for row in rows if row["gpus"] == gpus):
            numbers = (row["step_seconds"], *row["parts"].values(), row["judge_span"], row["judge_hidden"])
            table.add_row(row["variant"], *(f"{number:.0f}" for number in numbers), f"{row['engine_share']:.0%}")
        console.print(table)
    console.print("rollouts, judge, lessons: waits. A, B: training on reflections and on rollouts. judge works: from a")
    console.print(
        "step's first call to its last; hidden: the part of it behind other work. engine: share of time sampling."
    )


if __name__ == "__main__":
    sys.exit(main())
