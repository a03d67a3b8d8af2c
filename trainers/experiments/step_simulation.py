"""An event simulation of a run's steps: rollouts, judge, reflections and updates as queues that wait for each other.

A rollout alternates between the engine and its tools. When the rollouts of a group are done, the judge proposes, then
scores each; reflections on a new question follow, sampled by the same engine and judged. The trainer waits for its
step's judgements, trains on the finished reflections (Phase A), then on the rollouts (Phase B). Processes are generators
that yield what they wait for: seconds or a signal.

Deliberately absent: failures and retries, the validation loop, checkpoints.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from ..verl_backend.planning.estimate import PhaseTimes
from ..verl_backend.planning.run_shape import Layout

Process = Generator["float | Signal", None, None]


class Signal:
    """An event that happens once, at the given call of `fire`."""

    def __init__(self, calls: int = 1) -> None:
        self.has_fired = False
        self._left = calls
        self._waiting: list[Callable[[], None]] = []

    def fire(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_fired = True
            for waiting in self._waiting:
                waiting()

    def then(self, callback: Callable[[], None]) -> None:
        """Call back when it fires, or at once if it has."""
        if self.has_fired:
            callback()
        else:
            self._waiting.append(callback)


class Clock:
    """Runs processes in the order of their times; among equal times, in the order of scheduling."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watchers: list[Callable[[float], None]] = []
        """Called with the length of each interval at its end, before the state changes."""
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), callback))

    def start(self, process: Process) -> Signal:
        """Start a process; the signal fires when it is done."""
        done = Signal()

        def resume() -> None:
            for waited_for in process:
                if not isinstance(waited_for, Signal):
                    self.after(waited_for, resume)
                    return
                if not waited_for.has_fired:
                    waited_for.then(resume)
                    return
            done.fire()

        resume()
        return done

    def run(self, until: Signal | None = None) -> None:
        """Run to the end of all processes, or until a signal fires."""
        while self._events and not (until and until.has_fired):
            time, _, callback = heapq.heappop(self._events)
            for watcher in self.watchers:
                watcher(time - self.now)
            self.now = time
            callback()


class Seats:
    """A number of slots, given out in the order of the requests."""

    def __init__(self, number: int) -> None:
        self.taken = 0
        self._number = number
        self._queue: deque[Signal] = deque()

    def take(self) -> Signal:
        """Fires when a slot is free; it is then taken."""
        turn = Signal()
        if self.taken < self._number:
            self.taken += 1
            turn.fire()
        else:
            self._queue.append(turn)
        return turn

    def leave(self) -> None:
        if self._queue:
            self._queue.popleft().fire()
        else:
            self.taken -= 1


Doing = Literal[
    "waits for rollouts",
    "waits for the judge",
    "waits for reflections",
    "trains on reflections",
    "trains on rollouts",
    "swaps",
]
DOINGS: tuple[Doing, ...] = get_args(Doing)
"""What the trainer does or waits for."""


class StepRecord:
    """One step of a simulation: the seconds booked on it, and what its questions still wait for."""

    def __init__(self, step: int, scenario: "Scenario") -> None:
        self.step = step
        self.seconds = dict.fromkeys(DOINGS, 0.0)
        self.engine_seconds = 0.0
        """Of the step, those in which the engine sampled."""
        self.judge_began: float | None = None
        self.judge_ended = 0.0
        self.sampled = Signal(scenario.questions * scenario.group_size)
        self.proposed, self.judged, self.reflected = (Signal(scenario.questions) for _ in range(3))

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def judge_span(self) -> float:
        """From the first call to the judge about this step's questions to the last."""
        return 0.0 if self.judge_began is None else self.judge_ended - self.judge_began

    def book(self, doing: Doing, seconds: float, *, engine_is_busy: bool) -> None:
        self.seconds[doing] += seconds
        self.engine_seconds += seconds if engine_is_busy else 0.0


class StepMeans(NamedTuple):
    """An average step of a run."""

    step_seconds: float
    seconds: dict[Doing, float]
    judge_span: float
    judge_exposed: float
    """The part of the span that the trainer waited for."""
    engine_share: float
    """The share of the time in which the engine sampled."""
    binds: Doing
    """What took longest."""


def average(records: Sequence[StepRecord]) -> StepMeans:
    """The mean over some steps, which should be whole cycles of the curriculum."""
    number = len(records)
    seconds = {doing: sum(record.seconds[doing] for record in records) / number for doing in DOINGS}
    total = sum(seconds.values())
    return StepMeans(
        step_seconds=total,
        seconds=seconds,
        judge_span=sum(record.judge_span for record in records) / number,
        judge_exposed=seconds["waits for the judge"],
        engine_share=sum(record.engine_seconds for record in records) / number / total if total else 0.0,
        binds=max(seconds, key=lambda doing: seconds[doing]),
    )


class Engine:
    """Serves requests for tokens, as many at once as it has slots; the others wait.

    All running requests have the same speed: an equal share of the engine's, or a single sequence's where that is less.
    So one count of served tokens determines when each is done, however often the speed changes.
    """

    def __init__(self, clock: Clock, *, speed: float, fastest: float, seats: int) -> None:
        """`speed` is tokens a second in all, `fastest` those of one request at most."""
        self._clock = clock
        self._speed = speed
        self._fastest = fastest
        self._seats = Seats(seats)
        self._is_paused = False
        self._served = 0.0
        self._counted_at = 0.0
        self._version = 0
        self._order = itertools.count()
        self._ends: list[tuple[float, int, Signal]] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._ends) and not self._is_paused

    @property
    def requests(self) -> int:
        return len(self._ends)

    def serve(self, tokens: float) -> Signal:
        """Fires when that many tokens are sampled."""
        done = Signal()
        self._seats.take().then(lambda: self._begin(tokens, done))
        return done

    def pause(self, *, ends: bool = False) -> None:
        """Requests keep their tokens and get no more, until the pause ends."""
        self._count()
        self._is_paused = not ends
        self._plan()

    def _begin(self, tokens: float, done: Signal) -> None:
        self._count()
        heapq.heappush(self._ends, (self._served + tokens, next(self._order), done))
        self._plan()

    def _rate(self) -> float:
        """Tokens a second of each request."""
        if self._is_paused or not self._ends:
            return 0.0
        return min(self._fastest, self._speed / len(self._ends))

    def _count(self) -> None:
        self._served += self._rate() * (self._clock.now - self._counted_at)
        self._counted_at = self._clock.now

    def _plan(self) -> None:
        """Schedule a callback at the next end; earlier callbacks become void."""
        self._version += 1
        rate, version = self._rate(), self._version
        if rate:
            self._clock.after(max(0.0, (self._ends[0][0] - self._served) / rate), lambda: self._finish(version))

    def _finish(self, version: int) -> None:
        if version != self._version:
            return
        self._count()
        end, _, done = heapq.heappop(self._ends)
        self._served = max(self._served, end)
        self._plan()
        self._seats.leave()
        done.fire()


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
    in_lockstep: bool = False
    """Judge a step when all its rollouts are done, and score when all its rubrics are proposed, as in the paper."""
    window: int = 3
    seed: int = 0


Draw = Callable[[float], float]
"""Draws a length or time with the given mean."""


def attempt_draws(spread: float, seed: Sequence[int]) -> Draw:
    """Log-normal draws of one attempt; the mean itself without spread.

    Each attempt has its own generator, so that two scenarios draw the same lengths and times.
    """
    rng = np.random.default_rng(seed)
    if spread == 0:
        return lambda mean: mean
    return lambda mean: mean * float(rng.lognormal(-spread * spread / 2, spread))


class StepSimulation:
    """One run of a scenario."""

    def __init__(self, times: PhaseTimes, scenario: Scenario) -> None:
        self._times = times
        self._scenario = scenario
        self._clock = Clock()
        self._engine = Engine(
            self._clock, speed=times.engine_speed, fastest=times.sequence_speed, seats=times.engine_seats
        )
        self._judge = Seats(times.judge_seats)
        self._records: dict[int, StepRecord] = {}
        self._lessons = 0
        self._doing: Doing | None = None
        """None while it waits."""
        self._current: StepRecord | None = None

    def run(self) -> tuple[StepRecord, ...]:
        """The steps, one after the other."""
        self._clock.watchers.append(self._book)
        self._clock.run(until=self._clock.start(self._train()))
        return tuple(self._records.values())

    def _train(self) -> Process:
        last, layout = self._scenario.steps, self._scenario.layout
        for step in range(1, last + 1):
            ahead = 0 if layout == "sync" else self._scenario.ahead
            for one in range(step, min(last, step + ahead) + 1):
                self._launch(one)
            record = self._current = self._records[step]
            self._doing = None
            yield record.judged
            if self._reflects(step) and not self._scenario.defers:
                yield record.reflected
            yield from self._update()

    def _update(self) -> Process:
        if self._scenario.layout != "separate":
            self._engine.pause()
        ready, self._lessons = self._lessons, 0
        self._doing = "trains on reflections"
        yield self._times.lesson_seconds * ready / self._scenario.questions
        self._doing = "trains on rollouts"
        yield self._times.task_seconds
        self._doing = "swaps"
        self._engine.pause()
        yield self._times.swap_seconds
        self._engine.pause(ends=True)

    def _launch(self, step: int) -> None:
        """Start the questions of a step, unless they have started."""
        if step in self._records:
            return
        record = self._records[step] = StepRecord(step, self._scenario)
        for question in range(self._scenario.questions):
            self._clock.start(self._group(record, question))

    def _group(self, record: StepRecord, question: int) -> Process:
        draws = [
            attempt_draws(self._times.spread, (self._scenario.seed, record.step, question, attempt))
            for attempt in range(self._scenario.group_size)
        ]
        yield from [self._clock.start(self._rollout(record, draw)) for draw in draws]
        if self._scenario.in_lockstep:
            yield record.sampled
        if record.judge_began is None:
            record.judge_began = self._clock.now
        yield from self._call_judge(draws[0](self._times.propose_seconds))
        record.proposed.fire()
        if self._scenario.in_lockstep:
            yield record.proposed
        calls = [self._call_judge(draw(self._times.score_seconds)) for draw in draws]
        yield from [self._clock.start(call) for call in calls]
        record.judge_ended = self._clock.now
        if self._reflects(record.step):
            self._clock.start(self._reflect(record, draws[0]))
        record.judged.fire()

    def _rollout(self, record: StepRecord, draw: Draw) -> Process:
        turns = int(min(self._times.most_searches, round(draw(self._times.searches)))) + 1
        tokens = min(self._times.longest_tokens, draw(self._times.written_tokens))
        for turn in range(turns):
            yield self._engine.serve(tokens / turns)
            if turn < turns - 1:
                yield draw(self._times.tool_seconds)
        record.sampled.fire()

    def _reflect(self, record: StepRecord, draw: Draw) -> Process:
        lengths = [draw(self._times.reflection_tokens) for _ in range(self._times.candidates)]
        yield from [self._engine.serve(tokens) for tokens in lengths]
        yield from self._call_judge(draw(self._times.reflect_seconds))
        self._lessons += 1
        record.reflected.fire()

    def _call_judge(self, seconds: float) -> Process:
        """One call to the judge, when a slot is free."""
        yield self._judge.take()
        yield seconds
        self._judge.leave()

    def _reflects(self, step: int) -> bool:
        """Only new questions are reflected on; they fill the first window of every two."""
        return self._scenario.has_lessons and (step - 1) % (2 * self._scenario.window) < self._scenario.window

    def _book(self, seconds: float) -> None:
        """Book an interval on the trainer's activity, or on what it waits for."""
        record, doing = self._current, self._doing
        if record is None:
            return
        if doing is None:
            after_sampling: Doing = "waits for reflections" if record.judged.has_fired else "waits for the judge"
            doing = after_sampling if record.sampled.has_fired else "waits for rollouts"
        record.book(doing, seconds, engine_is_busy=self._engine.is_busy)


def simulate(times: PhaseTimes, scenario: Scenario) -> tuple[StepRecord, ...]:
    """The steps of a scenario."""
    return StepSimulation(times, scenario).run()
