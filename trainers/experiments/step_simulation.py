"""The steps of a run in simulated time: rollouts, judge, reflections and updates as queues that wait for each other.

A rollout takes turns between the engine and its tools. When a group's rollouts are done its judge proposes, then
scores each; a new question's reflections follow, sampled by the same engine and judged. The trainer waits for its
step's judgements, trains on the reflections that have come in (Phase A) and on the rollouts (Phase B).

Deliberately absent: failures and retries, the validation loop, checkpoints.

Simulated time: processes are generators that yield what they wait for, seconds or a signal.

Where the seconds of a simulated step went.

A sampling engine in simulated time: requests share its speed, none is faster than a single one can be.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from trainers.verl_backend.planning.estimate import PhaseTimes
from trainers.verl_backend.planning.run_shape import Layout

Process = Generator["float | Signal", None, None]


class Signal:
    """Something that happens once."""

    def __init__(self) -> None:
        self.has_fired = False
        self._waiting: list[Callable[[], None]] = []

    def fire(self) -> None:
        if not self.has_fired:
            self.has_fired = True
            for waiting in self._waiting:
                waiting()

    def then(self, callback: Callable[[], None]) -> None:
        """Call back when it happens, at once where it has."""
        if self.has_fired:
            callback()
        else:
            self._waiting.append(callback)


class Clock:
    """Runs processes in the order of their times; among equal times, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watchers: list[Callable[[float], None]] = []
        """Told of each stretch of time before it is over, while the state is still that of the stretch."""
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), callback))

    def start(self, process: Process) -> Signal:
        """Let a process run; the signal says that it is done."""
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
        """On to the end of all processes, or to a signal."""
        while self._events and not (until and until.has_fired):
            time, _, callback = heapq.heappop(self._events)
            for watcher in self.watchers:
                watcher(time - self.now)
            self.now = time
            callback()


def all_of(signals: Iterable[Signal]) -> Process:
    """A process that is over when all of them have happened."""
    yield from signals


class Seats:
    """A number of places that are taken in the order of asking."""

    def __init__(self, number: int) -> None:
        self.taken = 0
        self._number = number
        self._queue: deque[Signal] = deque()

    def take(self) -> Signal:
        """Fires when a place is there; then it is taken."""
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


class Doing(StrEnum):
    """What the trainer did, or what it waited for."""

    WAIT = "wait"
    FOR_ROLLOUTS = "waits for rollouts"
    FOR_JUDGE = "waits for the judge"
    FOR_REFLECTIONS = "waits for reflections"
    PHASE_A = "trains on reflections"
    PHASE_B = "trains on rollouts"
    SWAP = "swaps"


class StepRecord:
    """One step's account, kept while it is simulated."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.seconds = dict.fromkeys(Doing, 0.0)
        self.engine_seconds = 0.0
        """Of the step, those in which the engine sampled."""
        self._judged_from: float | None = None
        self._judged_until = 0.0

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def judge_span(self) -> float:
        """From the first call to the judge about this step's questions to the last."""
        return 0.0 if self._judged_from is None else self._judged_until - self._judged_from

    def book(self, doing: Doing, seconds: float, *, engine_is_busy: bool) -> None:
        self.seconds[doing] += seconds
        self.engine_seconds += seconds if engine_is_busy else 0.0

    def judge_begins(self, now: float) -> None:
        if self._judged_from is None:
            self._judged_from = now

    def judge_ends(self, now: float) -> None:
        self._judged_until = now


class StepMeans(NamedTuple):
    """An average step of a run."""

    step_seconds: float
    seconds: dict[Doing, float]
    judge_span: float
    judge_exposed: float
    """Of the span, what the trainer waited for."""
    engine_share: float
    """Of the time, that in which the engine sampled."""
    binds: Doing
    """What took the largest part."""


def average(records: Sequence[StepRecord]) -> StepMeans:
    """The mean over some steps, which should be whole turns of the curriculum."""
    number = len(records)
    seconds = {doing: sum(record.seconds[doing] for record in records) / number for doing in Doing}
    total = sum(seconds.values())
    return StepMeans(
        step_seconds=total,
        seconds=seconds,
        judge_span=sum(record.judge_span for record in records) / number,
        judge_exposed=seconds[Doing.FOR_JUDGE],
        engine_share=sum(record.engine_seconds for record in records) / number / total if total else 0.0,
        binds=max(seconds, key=lambda doing: seconds[doing]),
    )


class Engine:
    """Serves requests for tokens, as many at once as it has seats; the rest wait their turn.

    All that are served go at the same speed: the engine's share each, or the speed of a single sequence where that is
    less. So one count of tokens served says when each is done, however often the speed changes.
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
        """Fires when so many tokens are sampled."""
        done = Signal()
        self._seats.take().then(lambda: self._begin(tokens, done))
        return done

    def pause(self) -> None:
        """Requests keep what they have and get no more."""
        self._count()
        self._is_paused = True
        self._plan()

    def resume(self) -> None:
        self._count()
        self._is_paused = False
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
        """Ask to be called at the next end; what was asked before no longer counts."""
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
    """How the parts of a step are strung together."""

    questions: int
    group_size: int
    steps: int
    layout: Layout = "async"
    has_lessons: bool = True
    """Whether there is a meta-policy."""
    defers: bool = True
    """Train on reflections one step late, instead of waiting for them."""
    in_lockstep: bool = False
    """Judge a step when all its rollouts are done, and score when all its rubrics are proposed, as the paper does."""
    window: int = 3
    seed: int = 0


class AttemptDraws:
    """The lengths and times of one attempt. They belong to the attempt, so that two scenarios differ in nothing else."""

    def __init__(self, spread: float, seed: Sequence[int]) -> None:
        self._spread = spread
        self._rng = np.random.default_rng(seed)

    def draw(self, mean: float) -> float:
        """Log-normal with that mean; the mean itself without spread."""
        if self._spread == 0:
            return mean
        return mean * float(self._rng.lognormal(-self._spread * self._spread / 2, self._spread))


class _Batch:
    """The questions of a step on their way."""

    def __init__(self, record: StepRecord, scenario: Scenario) -> None:
        self.record = record
        self.rolling = scenario.questions * scenario.group_size
        self.proposing = self.judging = self.reflecting = scenario.questions
        self.rolled, self.proposed, self.judged, self.reflected = Signal(), Signal(), Signal(), Signal()


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
        self._batches: dict[int, _Batch] = {}
        self._lessons = 0
        self._doing = Doing.WAIT
        self._current: _Batch | None = None

    def run(self) -> tuple[StepRecord, ...]:
        """The steps, one after the other."""
        self._clock.watchers.append(self._book)
        self._clock.run(until=self._clock.start(self._train()))
        return tuple(batch.record for batch in self._batches.values())

    def _train(self) -> Process:
        last, layout = self._scenario.steps, self._scenario.layout
        for step in range(1, last + 1):
            self._launch(step)
            if layout != "sync" and step < last:
                self._launch(step + 1)
            batch = self._current = self._batches[step]
            self._doing = Doing.WAIT
            yield batch.judged
            if self._reflects(step) and not self._scenario.defers:
                yield batch.reflected
            yield from self._update()

    def _update(self) -> Process:
        if self._scenario.layout != "separate":
            self._engine.pause()
        ready, self._lessons = self._lessons, 0
        self._doing = Doing.PHASE_A
        yield self._times.lesson_seconds * ready / self._scenario.questions
        self._doing = Doing.PHASE_B
        yield self._times.task_seconds
        self._doing = Doing.SWAP
        self._engine.pause()
        yield self._times.swap_seconds
        self._engine.resume()

    def _launch(self, step: int) -> None:
        """Let a step's questions begin, unless they have."""
        if step in self._batches:
            return
        batch = self._batches[step] = _Batch(StepRecord(step), self._scenario)
        for question in range(self._scenario.questions):
            self._clock.start(self._group(batch, question))

    def _group(self, batch: _Batch, question: int) -> Process:
        size = self._scenario.group_size
        draws = [
            AttemptDraws(self._times.spread, (self._scenario.seed, batch.record.step, question, n)) for n in range(size)
        ]
        yield from all_of([self._clock.start(self._rollout(batch, own)) for own in draws])
        if self._scenario.in_lockstep:
            yield batch.rolled
        batch.record.judge_begins(self._clock.now)
        yield from self._ask(draws[0].draw(self._times.propose_seconds))
        batch.proposing -= 1
        if batch.proposing == 0:
            batch.proposed.fire()
        if self._scenario.in_lockstep:
            yield batch.proposed
        asked = [self._ask(own.draw(self._times.score_seconds)) for own in draws]
        yield from all_of([self._clock.start(call) for call in asked])
        batch.record.judge_ends(self._clock.now)
        batch.judging -= 1
        if self._reflects(batch.record.step):
            self._clock.start(self._reflect(batch, draws[0]))
        if batch.judging == 0:
            batch.judged.fire()

    def _rollout(self, batch: _Batch, own: AttemptDraws) -> Process:
        turns = int(min(self._times.most_searches, round(own.draw(self._times.searches)))) + 1
        tokens = min(self._times.longest_tokens, own.draw(self._times.written_tokens))
        for turn in range(turns):
            yield self._engine.serve(tokens / turns)
            if turn < turns - 1:
                yield own.draw(self._times.tool_seconds)
        batch.rolling -= 1
        if batch.rolling == 0:
            batch.rolled.fire()

    def _reflect(self, batch: _Batch, own: AttemptDraws) -> Process:
        drawn = [own.draw(self._times.reflection_tokens) for _ in range(self._times.candidates)]
        yield from all_of([self._engine.serve(tokens) for tokens in drawn])
        yield from self._ask(own.draw(self._times.reflect_seconds))
        self._lessons += 1
        batch.reflecting -= 1
        if batch.reflecting == 0:
            batch.reflected.fire()

    def _ask(self, seconds: float) -> Process:
        """One call to the judge, when there is room for it."""
        yield self._judge.take()
        yield seconds
        self._judge.leave()

    def _reflects(self, step: int) -> bool:
        """New questions alone are reflected on; they fill the first window of every two."""
        return self._scenario.has_lessons and (step - 1) % (2 * self._scenario.window) < self._scenario.window

    def _book(self, seconds: float) -> None:
        """Write a stretch of time down for what the trainer was doing, or waiting for."""
        batch = self._current
        if batch is None:
            return
        doing = self._doing
        if doing is Doing.WAIT:
            waits_for_judge = Doing.FOR_REFLECTIONS if batch.judged.has_fired else Doing.FOR_JUDGE
            doing = waits_for_judge if batch.rolled.has_fired else Doing.FOR_ROLLOUTS
        batch.record.book(doing, seconds, engine_is_busy=self._engine.is_busy)


def simulate(times: PhaseTimes, scenario: Scenario) -> tuple[StepRecord, ...]:
    """The steps of a scenario."""
    return StepSimulation(times, scenario).run()
