"""The memory of a GPU while the policy samples and while it trains, and what the host holds meanwhile.

Both take turns on the same GPUs: the engine gives its memory back while training, and training moves what it may to
the host while sampling. Estimates in GiB from the shapes; see `Assumptions` for what shapes do not tell.

The calls of a step and the money of a run: the judge of rollouts, the judge of reflections, the searches, the GPUs.

How long the parts of a step take, as measured or as estimated from shapes: what the simulation goes by.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, NamedTuple

from pydantic import Field

from rubricem_agent.config import RULES, parse_judge
from rubricem_env.domain.base import Frozen
from rubricem_env.domain.errors import ConfigError
from rubricem_env.judge.base import ReflectionMode
from rubricem_env.judge.llm_judge import MAX_CANDIDATE_CHARS
from rubricem_env.judge.prompting import CONTRAST_BUDGET, SCORING_BUDGET, RenderBudget
from rubricem_env.llm.usage import PRICES, Price, price_of
from trainers.verl_backend.planning.run_shape import KNOWN, Assumptions, Layout, ModelShape, RunShape

GIB = 2**30
_WEIGHT, _GRADIENT, _MOMENTS = 4, 4, 8
"""Bytes of a parameter in training: weights and gradients in float32, two moments of Adam."""
_HALF = 2
"""Bytes of a number in bfloat16."""


class MemoryUse(NamedTuple):
    """One thing that takes memory."""

    what: str
    gib: float


class MemoryPlan(NamedTuple):
    """Of each GPU and each node."""

    gpu_gib: float
    training: tuple[MemoryUse, ...]
    sampling: tuple[MemoryUse, ...]
    host_gib: float
    """Of a node, for what is off the GPUs."""
    checkpoint_gib: float
    """On disk, of one checkpoint: weights and moments."""
    cached_tokens: int
    """Tokens whose keys and values one engine holds."""
    longest: int
    """Sequences of the greatest length that one engine holds."""

    @property
    def training_gib(self) -> float:
        return sum(part.gib for part in self.training)

    @property
    def sampling_gib(self) -> float:
        return sum(part.gib for part in self.sampling)


def plan_memory(shape: RunShape, model: ModelShape, assumed: Assumptions) -> MemoryPlan:
    """What a GPU has to hold."""
    engine = _engine_parts(shape, model, assumed)
    cached_tokens = int(engine[-1].gib * GIB * shape.tensor_parallel / model.cache_bytes)
    sharded = model.parameters / shape.gpus / GIB
    kept = 0.0 if shape.computes_on_host or shape.offloads_weights else _WEIGHT * sharded
    kept += 0.0 if shape.computes_on_host or shape.offloads_moments else _MOMENTS * sharded
    on_host = 0.0 if not (shape.computes_on_host or shape.offloads_weights) else _WEIGHT + _GRADIENT
    on_host += 0.0 if not (shape.computes_on_host or shape.offloads_moments) else _MOMENTS
    return MemoryPlan(
        gpu_gib=assumed.gpu_gib,
        training=_training_parts(shape, model, assumed),
        sampling=(
            *engine,
            MemoryUse("weights and moments of training", kept),
            MemoryUse("reserve", assumed.reserve_gib),
        ),
        host_gib=(on_host + _WEIGHT) * sharded * shape.gpus_per_node,  # the frozen reference is always there
        checkpoint_gib=(_WEIGHT + _MOMENTS) * model.parameters / GIB,
        cached_tokens=cached_tokens,
        longest=cached_tokens // shape.total_tokens,
    )


def _training_parts(shape: RunShape, model: ModelShape, assumed: Assumptions) -> tuple[MemoryUse, ...]:
    sharded = 0.0 if shape.computes_on_host else model.parameters / shape.gpus / GIB
    layer, tokens = model.layer_parameters / GIB, shape.tokens_per_gpu / GIB
    # FSDP gathers a layer while it computes another; the embeddings stay gathered from the first to the last.
    gathered = _HALF * (2 * layer + model.embedding_parameters / GIB)
    one_layer = (6 * model.hidden + 3 * model.heads * model.head_size) * _HALF
    one_layer += (4 * model.kv_heads * model.head_size + 4 * model.mlp) * _HALF
    inputs = model.hidden * _HALF * model.layers
    return (
        MemoryUse("weights, sharded", _WEIGHT * sharded),
        MemoryUse("gradients, sharded", _GRADIENT * sharded),
        MemoryUse("optimiser's moments, sharded", _MOMENTS * sharded),
        MemoryUse("gathered weights and one layer's gradients", gathered + (_HALF + _GRADIENT) * layer),
        MemoryUse("activations", tokens * (inputs + one_layer if shape.recomputes else one_layer * model.layers)),
        MemoryUse("logits", tokens * model.vocabulary * assumed.logit_bytes),
        MemoryUse("reserve", assumed.reserve_gib),
    )


def _engine_parts(shape: RunShape, model: ModelShape, assumed: Assumptions) -> tuple[MemoryUse, ...]:
    weights = _HALF * model.parameters / shape.tensor_parallel / GIB
    cache = max(0.0, shape.engine_share * assumed.gpu_gib - weights - assumed.engine_overhead_gib)
    return (
        MemoryUse("engine's weights", weights),
        MemoryUse("engine's graphs and activations", assumed.engine_overhead_gib),
        MemoryUse("cache of keys and values", cache),
    )


def refuse_small_gpu(plan: MemoryPlan, shape: RunShape) -> None:
    """Refuse a run that cannot fit.

    Raises:
        ConfigError: training or sampling needs more than a GPU has, or the cache holds not one whole sequence.
    """
    for doing, needed in (("training", plan.training_gib), ("sampling", plan.sampling_gib)):
        if needed > plan.gpu_gib:
            largest = max(plan.training if doing == "training" else plan.sampling, key=lambda part: part.gib)
            raise ConfigError(
                f"a GPU of {plan.gpu_gib:.0f} GiB is too small: {doing} needs {needed:.0f} GiB on each of "
                f"{shape.gpus}, {largest.gib:.0f} of them for {largest.what}. {_ways_out(doing)}"
            )
    if plan.longest < 1:
        raise ConfigError(
            f"a GPU of {plan.gpu_gib:.0f} GiB is too small: the engine's cache holds {plan.cached_tokens} tokens and "
            f"the longest sequence has {shape.total_tokens}. {_ways_out('sampling')}"
        )


def _ways_out(doing: str) -> str:
    if doing == "training":
        return (
            "Take more nodes (trainer.nnodes), share a sequence among more GPUs "
            "(actor_rollout_ref.actor.ulysses_sequence_parallel_size, with ppo_max_token_len_per_gpu lowered alike), or "
            "compute the optimiser on the host (actor_rollout_ref.actor.fsdp_config.offload_policy=true)."
        )
    return (
        "Change the engine's share (actor_rollout_ref.rollout.gpu_memory_utilization), spread it over more GPUs "
        "(actor_rollout_ref.rollout.tensor_model_parallel_size), or offload training (fsdp_config.param_offload and "
        "optimizer_offload)."
    )


_BYTES = 4
"""Characters of a token, as everywhere in this project where no tokenizer counts."""
_PROPOSE_PROMPT, _SCORE_PROMPT, _REFLECT_PROMPT = 1_200, 700, 700
"""Instructions and question."""
_PROPOSAL_TOKENS, _MARK_TOKENS, _RUBRIC_TOKENS = 1_200, 60, 60
_SEARCH_TOKENS = 1_000
"""Of the model behind a grounded search: question and answer."""


class CallKind(NamedTuple):
    """One kind of call, as often as an average step makes it."""

    what: str
    calls: float
    input_tokens: float
    """Of one call."""
    output_tokens: float
    price: Price | None
    fee: float = 0.0
    """Dollars of a call beside its tokens."""
    is_free: bool = False

    @property
    def dollars(self) -> float | None:
        """Of a step; None where the model is in no price table."""
        if self.is_free or not self.calls:
            return 0.0
        if self.price is None:
            return None
        one = self.price.cost(round(self.input_tokens), 0, output_tokens=round(self.output_tokens))
        return self.calls * (one + self.fee)


class CostPlan(NamedTuple):
    """What a run calls and costs."""

    kinds: tuple[CallKind, ...]
    steps: int
    gpu_dollars: float
    """Of the run."""

    @property
    def step_dollars(self) -> float | None:
        return add_known(kind.dollars for kind in self.kinds)

    @property
    def run_dollars(self) -> float | None:
        """With the GPUs."""
        step = self.step_dollars
        return None if step is None else step * self.steps + self.gpu_dollars


def add_known(amounts: Iterable[float | None]) -> float | None:
    """The sum, or None where one of them is not known."""
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def plan_cost(shape: RunShape, assumed: Assumptions, *, hours: float, prices: Mapping[str, Price] = PRICES) -> CostPlan:
    """List prices; retries are in the calls. In the almanac nothing is called and nothing costs."""
    kinds = (
        ()
        if shape.settings.almanac is not None
        else (*_judging(shape, assumed, prices), *_searching(shape, assumed, prices))
    )
    return CostPlan(kinds, shape.steps, hours * shape.gpus * assumed.gpu_hour_dollars)


def _judging(shape: RunShape, assumed: Assumptions, prices: Mapping[str, Price]) -> tuple[CallKind, ...]:
    settings = shape.settings
    judges = [parse_judge(name) for name in (settings.judge.judge, *settings.judge.also)]
    again = 1 + assumed.retries
    scoring = _shown_tokens(assumed, SCORING_BUDGET) + _SCORE_PROMPT + assumed.rubrics * _RUBRIC_TOKENS
    contrast = shape.group_size * _shown_tokens(assumed, CONTRAST_BUDGET) + _PROPOSE_PROMPT
    kinds = []
    for judge in judges:
        price, free = price_of(judge.model, prices), judge.backend == RULES
        named = f" ({judge.model or judge.backend})"
        kinds.append(
            CallKind(
                f"judge: rubrics{named}",
                shape.questions * again,
                contrast,
                _PROPOSAL_TOKENS + assumed.thought_tokens,
                price,
                is_free=free,
            )
        )
        kinds.append(
            CallKind(
                f"judge: scores{named}",
                shape.attempts * again,
                scoring,
                assumed.rubrics * _MARK_TOKENS + assumed.thought_tokens,
                price,
                is_free=free,
            )
        )
        if settings.meta_policy:
            kinds.append(_reflecting(shape, assumed, price)._replace(what=f"judge: reflections{named}", is_free=free))
    return tuple(kinds)


def _reflecting(shape: RunShape, assumed: Assumptions, price: Price | None) -> CallKind:
    """New questions alone are reflected on, which is every other window of steps."""
    reflection = shape.settings.reflection
    listed = reflection.num_candidates if reflection.mode is ReflectionMode.LISTWISE else 1
    candidate = min(assumed.reflection_tokens, MAX_CANDIDATE_CHARS / _BYTES)
    return CallKind(
        "",
        shape.questions / 2 * (reflection.num_candidates / listed) * (1 + assumed.retries),
        _shown_tokens(assumed, SCORING_BUDGET) + _REFLECT_PROMPT + listed * candidate,
        listed * 3 * _MARK_TOKENS + assumed.thought_tokens,
        price,
    )


def _searching(shape: RunShape, assumed: Assumptions, prices: Mapping[str, Price]) -> tuple[CallKind, ...]:
    tools = shape.settings.tools
    asked = shape.attempts * assumed.searches * (1 - assumed.cached)
    # A tool server elsewhere pays its engines all the same.
    free = tools.replay is not None or (tools.backend == "offline" and tools.remote is None)
    google = tools.google_search
    by_model = google.engine == "gemini"
    usual_fee = 0.014 if by_model else 0.001
    price = (
        price_of(google.model, prices)
        if by_model
        else Price(input=0, output=0, as_of=min(p.as_of for p in PRICES.values()))
    )
    return (
        CallKind(
            f"google_search ({google.model if by_model else google.engine})",
            asked * assumed.google_share,
            100 if by_model else 0,
            _SEARCH_TOKENS if by_model else 0,
            price,
            usual_fee if google.fee is None else google.fee,
            is_free=free,
        ),
        CallKind("snippet_search", asked * (1 - assumed.google_share), 0, 0, None, is_free=True),
    )


def _shown_tokens(assumed: Assumptions, budget: RenderBudget) -> float:
    """Of an attempt as a judge sees it: what the policy wrote, and tool text as far as the budget lets it through."""
    seen = assumed.searches * min(assumed.observed_tokens, budget.tool_chars / _BYTES)
    return min(assumed.written_tokens + seen, 4 * budget.stage_chars / _BYTES)


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
