"""The steps of a run in simulated time: rollouts, judge, reflections and updates as queues that wait for each other.

A rollout takes turns between the engine and its tools. When a group's rollouts are done its judge proposes, then
scores each; a new question's reflections follow, sampled by the same engine and judged. The trainer waits for its
step's judgements, trains on the reflections that have come in (Phase A) and on the rollouts (Phase B).

Deliberately absent: failures and retries, the validation loop, checkpoints.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainers.verl_backend.planning.clock import Clock, Process, Seats, Signal, all_of
from trainers.verl_backend.planning.engine import Engine
from trainers.verl_backend.planning.phase_times import PhaseTimes
from trainers.verl_backend.planning.run_shape import Layout
from trainers.verl_backend.planning.step_record import Doing, StepRecord


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


class Draws:
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
        draws = [Draws(self._times.spread, (self._scenario.seed, batch.record.step, question, n)) for n in range(size)]
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

    def _rollout(self, batch: _Batch, own: Draws) -> Process:
        turns = int(min(self._times.most_searches, round(own.draw(self._times.searches)))) + 1
        tokens = min(self._times.longest_tokens, own.draw(self._times.written_tokens))
        for turn in range(turns):
            yield self._engine.serve(tokens / turns)
            if turn < turns - 1:
                yield own.draw(self._times.tool_seconds)
        batch.rolling -= 1
        if batch.rolling == 0:
            batch.rolled.fire()

    def _reflect(self, batch: _Batch, own: Draws) -> Process:
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
