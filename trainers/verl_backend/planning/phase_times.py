"""How long the parts of a step take, as measured or as estimated from shapes: what the simulation goes by."""

from typing import Annotated

from pydantic import Field

from rubricem_env.domain.base import Frozen
from trainers.verl_backend.planning.assumptions import Assumptions
from trainers.verl_backend.planning.memory import plan_memory
from trainers.verl_backend.planning.model_shape import KNOWN, ModelShape
from trainers.verl_backend.planning.run_shape import Layout, RunShape

Amount = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

_REFERENCE = KNOWN["qwen3-8b"].parameters
"""Of the model that `Assumptions.engine_tokens` speaks of."""


class PhaseTimes(Frozen):
    """Seconds, and tokens where a time depends on how much runs at once."""

    engine_speed: Positive
    """Tokens a second that are sampled in all."""
    sequence_speed: Positive
    """Tokens a second of one sequence, at most."""
    engine_seats: Count = 10_000
    """Sequences that are sampled at once."""
    written_tokens: Positive
    """Of an attempt."""
    longest_tokens: Positive
    """No attempt writes more."""
    searches: Amount = 0.0
    most_searches: Amount = 10.0
    tool_seconds: Amount = 0.0
    propose_seconds: Amount = 0.0
    score_seconds: Amount = 0.0
    reflect_seconds: Amount = 0.0
    judge_seats: Count = 10_000
    """Calls to the judge at once."""
    reflection_tokens: Amount = 0.0
    """Of one candidate."""
    candidates: Count = 8
    task_seconds: Amount = 0.0
    """Phase B: log-probabilities, reference and update of all attempts."""
    lesson_seconds: Amount = 0.0
    """Phase A, on the reflections of all questions of a step."""
    swap_seconds: Amount = 0.0
    """Between sampling and training, and new weights to the engine."""
    spread: Amount = 0.0


def estimate_times(shape: RunShape, model: ModelShape, assumed: Assumptions, *, layout: Layout) -> PhaseTimes:
    """The times of a run from its shape; each comes from `Assumptions` and is no measurement."""
    sampling = training = shape.gpus
    if layout == "separate":
        sampling = max(shape.tensor_parallel, shape.gpus // 2)
        training = max(1, shape.gpus - sampling)
    engines = max(1, sampling // shape.tensor_parallel)
    cached = plan_memory(shape, model, assumed).cached_tokens
    reflection = shape.settings.reflection
    lesson = min(assumed.sequence + assumed.reflection_tokens, reflection.total_tokens)
    return PhaseTimes(
        engine_speed=assumed.engine_tokens * sampling * _REFERENCE / model.parameters,
        sequence_speed=assumed.sequence_tokens,
        engine_seats=max(1, engines * min(shape.engine_seats, int(cached / assumed.sequence))),
        written_tokens=assumed.written_tokens,
        longest_tokens=shape.response_tokens,
        searches=assumed.searches,
        most_searches=shape.settings.limits.max_calls,
        tool_seconds=assumed.tool_seconds,
        propose_seconds=assumed.propose_seconds,
        score_seconds=assumed.score_seconds,
        reflect_seconds=assumed.reflect_seconds,
        judge_seats=shape.settings.judge.rates.concurrency,
        reflection_tokens=min(assumed.reflection_tokens, reflection.new_tokens),
        candidates=reflection.num_candidates,
        task_seconds=shape.attempts * _train_seconds(assumed.sequence, shape, model, assumed) / training,
        lesson_seconds=shape.questions
        * reflection.num_candidates
        * _train_seconds(lesson, shape, model, assumed)
        / training,
        swap_seconds=assumed.swap_seconds,
        spread=assumed.spread,
    )


def _train_seconds(sequence: float, shape: RunShape, model: ModelShape, assumed: Assumptions) -> float:
    """Of one sequence on one GPU: three passes forward, one backward of twice the work, one more where it recomputes."""
    passes = 6 if shape.recomputes else 5
    operations = sequence * model.forward_operations(sequence) * passes
    return operations / (assumed.gpu_teraflops * 1e12 * assumed.utilisation)
