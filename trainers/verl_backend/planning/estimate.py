"""Estimates for a run from its shape: GPU and host memory, seconds of a step, calls and money.

Sampling and training take turns on the same GPUs: the engine frees its memory while training, and training moves what
it may to the host while sampling. `Assumptions` holds every number that does not follow from shapes.
"""

import math
from collections.abc import Iterator
from ipaddress import ip_address
from statistics import NormalDist
from typing import NamedTuple

from rubricem_agent.config.search_engines import GoogleSearchConfig, SearchConfig
from rubricem_agent.config.tools import ToolsConfig
from rubricem_agent.model_names import OWN_JUDGES, parse_judge
from rubricem_agent.wiring.prices import list_prices
from rubricem_env.domain.base import PositiveCount
from rubricem_env.domain.errors import ConfigError
from rubricem_env.judge.model.request_blocks import MAX_CANDIDATE_CHARS
from rubricem_env.llm.hosts import url_host
from rubricem_env.llm.prices import describe_prices, price_of
from rubricem_env.tools.engines import ENGINES
from rubricem_env.tools.spec import GOOGLE_SEARCH, SNIPPET_SEARCH

from .run_shape import KNOWN, Amount, Assumptions, Durations, Layout, ModelShape, Positive, RunShape
from .windows import plan_windows

GIB = 2**30
_WEIGHT, _GRADIENT, _MOMENTS = 4, 4, 8
"""Bytes of a parameter in training: weights and gradients in float32, two moments of Adam."""
_HALF = 2
"""Bytes of a number in bfloat16."""
_FUSED_TOKENS = 1_024
"""Tokens whose logits veRL's fused kernels hold at once."""
_TENSOR_GAIN = 0.5
"""How much faster one sequence is sampled each time that an engine's GPUs double; their total falls by a tenth."""


class MemoryPlan(NamedTuple):
    """GiB on each GPU and each node."""

    training: dict[str, float]
    """By what uses it."""
    sampling: dict[str, float]
    host_gib: float
    """Of a node, for what is offloaded."""
    checkpoint_gib: float
    """On disk, of one checkpoint: weights and moments, once for each group of GPUs that shards them."""
    cached_tokens: int
    """Tokens whose keys and values one engine holds."""


def plan_memory(shape: RunShape, model: ModelShape, assumed: Assumptions) -> MemoryPlan:
    """The memory that training and sampling need."""
    weights = _HALF * model.parameters / shape.tensor_parallel / GIB
    cache = max(0.0, shape.engine_share * assumed.gpu_gib - weights - assumed.engine_overhead_gib)
    sharded, layer = model.parameters / shape.sharded_over / GIB, model.layer_parameters / GIB
    tokens, on_gpu = shape.tokens_per_gpu / GIB, 0.0 if shape.computes_on_host else sharded
    weights_away = shape.computes_on_host or shape.offloads_weights
    moments_away = shape.computes_on_host or shape.offloads_moments
    offloaded = (_WEIGHT + _GRADIENT if weights_away else 0) + (_MOMENTS if moments_away else 0)
    kept = (0 if weights_away else _WEIGHT) + (0 if moments_away else _MOMENTS)
    # FSDP gathers a layer while it computes another; the embeddings stay gathered from the first to the last.
    gathered = _HALF * (2 * layer + model.embedding_parameters / GIB) + (_HALF + _GRADIENT) * layer
    one_layer = 6 * model.hidden + 3 * model.heads * model.head_size
    one_layer += 4 * model.kv_heads * model.head_size + 4 * model.mlp
    activations = model.hidden * model.layers + one_layer if shape.recomputes else one_layer * model.layers
    return MemoryPlan(
        training={
            "weights, sharded": _WEIGHT * on_gpu,
            "gradients, sharded": _GRADIENT * on_gpu,
            "optimiser's moments, sharded": _MOMENTS * on_gpu,
            "gathered weights and one layer's gradients": gathered,
            "activations": tokens * _HALF * activations,
            "logits": (_FUSED_TOKENS / GIB if shape.fuses else tokens) * model.vocabulary * assumed.logit_bytes,
            "reserve": assumed.reserve_gib,
        },
        sampling={
            "engine's weights": weights,
            "engine's graphs and activations": assumed.engine_overhead_gib,
            "cache of keys and values": cache,
            "weights and moments of training": kept * sharded,
            "reserve": assumed.reserve_gib,
        },
        # The frozen reference, if any, is always on the host.
        host_gib=(offloaded + _WEIGHT * shape.has_reference) * sharded * shape.gpus_per_node,
        # veRL writes the shard of every rank, so each replica of the weights is written too.
        checkpoint_gib=(_WEIGHT + _MOMENTS) * model.parameters / GIB * shape.gpus / shape.sharded_over,
        cached_tokens=int(cache * GIB * shape.tensor_parallel / model.cache_bytes),
    )


_RECORDED_BYTES = 4.0
"""Of the compressed record, for each token of an attempt: two of its id and probability, two of text and judgement."""


class DiskPlan(NamedTuple):
    """GiB on the disk of `trainer.default_local_dir`."""

    checkpoints: float
    """Those that are kept, and the one that is being written."""
    record: float
    """Of the whole run; 0 without a record."""


def plan_disk(shape: RunShape, model: ModelShape, assumed: Assumptions) -> DiskPlan:
    """What the whole run leaves on the disk."""
    saved = max(1, shape.steps // shape.save_every) if shape.save_every > 0 else 0
    kept = min(saved, shape.kept_checkpoints or saved) + 1 if saved else 0
    sampled, recorded = shape.settings.record, 0.0
    if sampled is not None:
        attempts = shape.questions * min(shape.group_size, sampled.attempts or shape.group_size)
        tokens = plan_windows(shape, assumed.in_the_largest_step).all_tokens
        recorded = shape.steps // sampled.every * attempts * tokens
    return DiskPlan(kept * plan_memory(shape, model, assumed).checkpoint_gib, recorded * _RECORDED_BYTES / GIB)


def refuse_small_gpu(plan: MemoryPlan, shape: RunShape, gpu_gib: float) -> None:
    """Raise ConfigError where training or sampling needs more than a GPU has, or a sequence more than the cache."""
    small = f"a GPU of {gpu_gib:.0f} GiB is too small:"
    for phase, uses, advice in (("training", plan.training, _TRAIN_LESS), ("sampling", plan.sampling, _SAMPLE_LESS)):
        needed = sum(uses.values())
        if needed > gpu_gib:
            largest = max(uses, key=lambda name: uses[name])
            raise ConfigError(
                f"{small} {phase} needs {needed:.0f} GiB on each of {shape.gpus}, {uses[largest]:.0f} of them for "
                f"{largest}. {advice}"
            )
    if plan.cached_tokens < shape.total_tokens:
        raise ConfigError(
            f"{small} the engine's cache holds {plan.cached_tokens} tokens and the longest sequence has "
            f"{shape.total_tokens}. {_SAMPLE_LESS}"
        )


_TRAIN_LESS = (
    "Take more nodes (trainer.nnodes), share a sequence among more GPUs "
    "(actor_rollout_ref.actor.ulysses_sequence_parallel_size, with ppo_max_token_len_per_gpu lowered alike), or "
    "compute the optimiser on the host (actor_rollout_ref.actor.fsdp_config.offload_policy=true)."
)
_SAMPLE_LESS = (
    "Change the engine's share (actor_rollout_ref.rollout.gpu_memory_utilization), spread it over more GPUs "
    "(actor_rollout_ref.rollout.tensor_model_parallel_size), or offload training (fsdp_config.param_offload and "
    "optimizer_offload)."
)


_BYTES = 4
"""Characters of a token, as everywhere in this project without a tokenizer."""
_PROPOSE_PROMPT, _SCORE_PROMPT, _REFLECT_PROMPT = 1_200, 700, 700
"""Instructions and question."""
_PROPOSAL_TOKENS, _SCORE_TOKENS, _RUBRIC_TOKENS = 1_200, 60, 60
_SEARCH_TOKENS = (100, 1_000)
"""Of the model behind a grounded search: question and answer."""


class CallKind(NamedTuple):
    """One kind of call: its number in an average step, its tokens, and what all of them cost."""

    what: str
    calls: float
    input_tokens: float = 0.0
    """Of one call."""
    output_tokens: float = 0.0
    dollars: float | None = 0.0
    """Of a step; None where the model is in no price table."""
    price: str = ""
    """What the model costs, who says so and of which day."""


def _priced(what: str, calls: float, model: str | None, *, read: float, written: float, fee: float = 0.0) -> CallKind:
    """Calls to a model at its list price, or to none, with a fee for each."""
    price = price_of(model, list_prices()) if model else None
    each = fee if price is None else fee + price.cost(round(read), 0, round(written))
    described = "".join(describe_prices([model], list_prices())) if model else ""
    return CallKind(what, calls, read, written, None if model and price is None else calls * each, described)


def plan_calls(shape: RunShape, assumed: Assumptions) -> list[CallKind]:
    """The calls of an average step without retries, at list prices. In the almanac nothing is called."""
    settings, tools = shape.settings, shape.settings.tools
    if settings.almanac is not None:
        return []
    kinds = list(judge_calls(shape, assumed))
    if not _searches(shape):
        return kinds
    searches = shape.attempts * assumed.searches * (1 - assumed.cached)
    google = _searching(tools, tools.google_search, searches * assumed.google_share, assumed)
    return [*kinds, google, _searching(tools, tools.snippet_search, searches * (1 - assumed.google_share), assumed)]


def _searches(shape: RunShape) -> bool:
    """Whether the task has the search tools, whose calls have a price."""
    return bool({*shape.settings.stage_set.scaffold.tools} & {GOOGLE_SEARCH, SNIPPET_SEARCH})


def _searching(tools: ToolsConfig, search: SearchConfig, calls: float, assumed: Assumptions) -> CallKind:
    """The calls of one search tool: at the price of its first engine, or of one that stands in, if that is higher."""
    model = search.model if isinstance(search, GoogleSearchConfig) and search.engine == "gemini" else None
    # A remote tool server pays its engines too.
    is_free = tools.replay is not None or (tools.backend == "offline" and tools.remote is None)
    read, written = _SEARCH_TOKENS if model and not is_free else (0, 0)
    source = ("record" if tools.replay else "own index") if is_free else model or search.engine
    what, fee = f"{ENGINES[search.engine].spec.name} ({source})", 0.0 if is_free else search.dollars
    speeds = _speeds(search, assumed)
    for engine, speed in zip(search.in_order[1:], speeds[1:], strict=True):
        fee += 0.0 if is_free else max(0.0, engine.dollars - search.dollars) * speed / sum(speeds)
    return _priced(what, calls, None if is_free else model, read=read, written=written, fee=fee)


def judge_calls(shape: RunShape, assumed: Assumptions, *, own_alone: bool = False) -> Iterator[CallKind]:
    """The calls of all judges, or of those on own servers alone."""
    config = shape.settings.judge
    for position, name in enumerate((config.judge, *config.also)):
        if not own_alone or is_own(parse_judge(name).url):
            proposes = position == 0 or config.proposers == "all"
            yield from _judging_of(name, shape, assumed, proposes=proposes)


def _judging_of(name: str, shape: RunShape, assumed: Assumptions, *, proposes: bool) -> Iterator[CallKind]:
    judge, ask, reflection = parse_judge(name), shape.settings.judge.ask, shape.settings.reflection
    # What a judge sees of an attempt, up to its limit: what the policy wrote and the tools returned.
    attempt = assumed.written_tokens + assumed.searches * assumed.observed_tokens
    shown = min(attempt, ask.trajectory_tokens)
    contrast = min(attempt * shape.group_size, ask.group_tokens)
    scores = assumed.rubrics * _SCORE_TOKENS
    rubrics = assumed.rubrics * _RUBRIC_TOKENS
    kinds: list[tuple[str, float, float, float]] = [
        ("rubrics", shape.questions * proposes, contrast + _PROPOSE_PROMPT, _PROPOSAL_TOKENS),
        ("scores", shape.attempts, shown + _SCORE_PROMPT + rubrics, scores),
    ]
    if shape.settings.meta_policy:
        listed = reflection.num_candidates if reflection.mode == "listwise" else 1
        lessons = shape.reflected * reflection.num_candidates / listed
        read = listed * min(assumed.reflection_tokens, MAX_CANDIDATE_CHARS / _BYTES)
        kinds.append(("reflections", lessons, shown + _REFLECT_PROMPT + read, listed * 3 * _SCORE_TOKENS))
    model = None if judge.backend in OWN_JUDGES or is_own(judge.url) else judge.model
    for what, calls, read, written in kinds:
        named = f"judge: {what} ({judge.model or judge.backend})"
        yield _priced(named, calls, model, read=read, written=written + assumed.thought_tokens)


def is_own(urls: str) -> bool:
    """Whether servers are within this machine or its network, so that their calls cost nothing but their GPUs."""
    return all(map(_is_near, map(url_host, urls.split(","))))


def _is_near(host: str) -> bool:
    try:
        return ip_address(host).is_private
    except ValueError:
        return bool(host) and ("." not in host or host.endswith((".local", ".internal")))


def judge_gpus(shape: RunShape, assumed: Assumptions) -> int:
    """The GPUs that judges on own servers need to judge a step within the times assumed."""
    kinds = list(judge_calls(shape, assumed, own_alone=True)) if shape.settings.almanac is None else []
    seconds = sum(kind.calls * kind.input_tokens for kind in kinds) / assumed.judge_read_tokens
    seconds += sum(kind.calls * kind.output_tokens for kind in kinds) / assumed.judge_written_tokens
    return math.ceil(seconds / (assumed.propose_seconds + assumed.score_seconds))


def search_seconds(shape: RunShape, assumed: Assumptions) -> dict[str, float]:
    """What each search engine's rates need for the calls of a step.

    Empty where its rates stand elsewhere, or none do.
    """
    tools = shape.settings.tools
    if (
        shape.settings.almanac is not None
        or not _searches(shape)
        or tools.backend != "web"
        or tools.remote
        or tools.replay
    ):
        return {}
    calls = {kind.what.partition(" ")[0]: kind.calls for kind in plan_calls(shape, assumed)}
    searches: dict[str, SearchConfig] = {GOOGLE_SEARCH: tools.google_search, SNIPPET_SEARCH: tools.snippet_search}
    return {name: calls[name] / sum(_speeds(search, assumed)) for name, search in searches.items()}


def _speeds(search: SearchConfig, assumed: Assumptions) -> list[float]:
    """Searches a second of each of its engines; those that stand in serve what is too much for the first."""
    limits = [engine.limits for engine in search.in_order]
    seconds = [
        max(60 / (rate.requests_per_minute or math.inf), assumed.tool_seconds / rate.concurrency) for rate in limits
    ]
    return [1 / each if each else math.inf for each in seconds]


_REFERENCE = KNOWN["qwen3-8b"].parameters
"""Parameters of the model that `Assumptions.engine_tokens` refers to."""


class PhaseTimes(Durations):
    """How long the parts of a step take, measured or estimated: seconds, and tokens where the load sets the time."""

    engine_speed: Positive
    """Tokens a second sampled in all."""
    sequence_speed: Positive
    """Tokens a second of one sequence, at most."""
    engine_seats: PositiveCount = 10_000
    """Sequences sampled at once."""
    longest_tokens: Positive
    """The limit of an attempt."""
    most_searches: Amount = 10.0
    search_seconds: Amount = 0.0
    """What the slowest search engine needs for the searches of a step under its rates."""
    fold_seconds: Amount = 0.0
    """What the engines need for the prompts of the windows after a fold."""
    judge_seats: PositiveCount = 10_000
    """Calls to the judge at once."""
    candidates: PositiveCount = 8
    task_seconds: Amount = 0.0
    """Phase B: log-probabilities, reference and update of all attempts."""
    lesson_seconds: Amount = 0.0
    """Phase A, on the reflections of all questions of a step."""


def estimate_times(shape: RunShape, model: ModelShape, assumed: Assumptions, *, layout: Layout) -> PhaseTimes:
    """The times of a run from its shape and `Assumptions`; none is measured."""
    sampling = training = shape.gpus
    if layout == "separate":
        sampling = max(shape.tensor_parallel, shape.gpus // 2)
        training = max(1, shape.gpus - sampling)
    engines = max(1, sampling // shape.tensor_parallel)
    cached = plan_memory(shape, model, assumed).cached_tokens
    reflection = shape.settings.reflection
    lessons = shape.questions * reflection.num_candidates
    same = assumed.model_dump(include={*Durations.model_fields})
    same["reflection_tokens"] = min(assumed.reflection_tokens, reflection.new_tokens)
    doublings = math.log2(shape.tensor_parallel)
    windows = plan_windows(shape, assumed)
    # What is read again begins with the same opening, which is cached.
    read = windows.again - (windows.number - 1) * assumed.start_tokens
    moved = (_WEIGHT if shape.offloads_weights else 0) + (_MOMENTS if shape.offloads_moments else 0)
    same["swap_seconds"] += 2 * moved * model.parameters / shape.sharded_over / GIB / assumed.host_gib
    return PhaseTimes(
        **same,
        engine_speed=assumed.engine_tokens * sampling * _REFERENCE / model.parameters * 0.9**doublings,
        sequence_speed=assumed.sequence_tokens * (1 + _TENSOR_GAIN * doublings),
        engine_seats=max(1, engines * min(shape.engine_seats, int(cached / windows.tokens))),
        longest_tokens=shape.response_tokens if windows.number == 1 else shape.settings.limits.max_tokens,
        search_seconds=max(search_seconds(shape, assumed).values(), default=0.0),
        most_searches=shape.settings.limits.max_calls,
        fold_seconds=shape.attempts
        * read
        * _operations(windows.tokens, model)
        / (assumed.train_teraflops * 1e12)
        / sampling,
        judge_seats=shape.settings.judge.rates.concurrency,
        candidates=reflection.num_candidates,
        task_seconds=shape.attempts * windows.number * _train_seconds(windows.tokens, shape, model, assumed) / training,
        lesson_seconds=lessons * _train_seconds(lesson_tokens(shape, assumed), shape, model, assumed) / training,
    )


def lesson_tokens(shape: RunShape, assumed: Assumptions) -> float:
    """Of a reflection candidate with its prompt, which all candidates of a question repeat."""
    return min(assumed.sequence + assumed.reflection_tokens, shape.settings.reflection.total_tokens)


def _train_seconds(sequence: float, shape: RunShape, model: ModelShape, assumed: Assumptions) -> float:
    """Of one sequence on one GPU: the passes forward, a backward one of twice the work, one more to recompute.

    Forward are the update, the policy's log-probabilities unless they are bypassed, and the reference's if there is
    one. Each micro-batch gathers the weights in all passes and reduces the gradients, beside its computation: the
    slower of the two sets the time.
    """
    forward = 1 + shape.has_reference + (not shape.bypasses)
    passes = forward + 2 + shape.recomputes
    computed = sequence * _operations(sequence, model) * passes / (assumed.train_teraflops * 1e12)
    room = shape.tokens_per_gpu * shape.sequence_parallel
    together = max(1.0, assumed.packing * room / sequence) / shape.sequence_parallel
    shards = shape.sharded_over
    network = min(assumed.node_gib, assumed.network_gib * assumed.nics)
    link = assumed.node_gib if shards <= shape.gpus_per_node else network
    moved = ((forward + 1) * _HALF + _GRADIENT) * model.parameters * (shards - 1) / shards / GIB
    return max(computed, moved / link / together)


def _operations(sequence: float, model: ModelShape) -> float:
    """Of a token forward, on average over a sequence: matrices and attention."""
    return 2 * model.parameters + 2 * model.layers * model.heads * model.head_size * sequence


NOT_ESTIMATED = "queues at engine and judge, failed episodes, checkpoints, validation and start-up"
"""What `estimate_step` leaves out; `python -m research.simulate` simulates the queues."""


def estimate_step(times: PhaseTimes, shape: RunShape) -> dict[str, float]:
    """Seconds of an average step by what the trainer does or waits for; their sum is the step.

    A step waits for its slowest attempt and for the judge, or for the throughput of engine, search or judge. In the
    layout `async` the questions of the next steps are sampled at the same time, so a group has one wait more for each
    step ahead; in `separate` sampling also continues while training.
    """
    reflected = shape.reflected / shape.questions
    updates = {
        "trains on reflections": times.lesson_seconds * reflected,
        "trains on rollouts": times.task_seconds,
        "swaps": times.swap_seconds,
    }
    busy = sum(updates.values())
    tokens = shape.attempts * times.written_tokens + shape.reflected * times.candidates * times.reflection_tokens
    engine = max(tokens / times.engine_speed + times.fold_seconds, times.search_seconds)
    longest = min(times.longest_tokens, times.written_tokens * _slowest(shape.attempts, times.spread))
    sampling = max(engine, longest / times.sequence_speed + times.searches * times.tool_seconds)
    calls = shape.questions * times.propose_seconds + shape.reflected * times.reflect_seconds
    judge = (calls + shape.attempts * times.score_seconds) / times.judge_seats
    judging = max(judge, times.propose_seconds + times.score_seconds * _slowest(shape.group_size, times.spread))
    chain = sampling + judging
    waits = {
        "sync": chain,
        "async": max(engine, judge - busy, chain / (1 + shape.ahead)),
        "separate": max(0.0, engine - busy, judge - busy, (chain - busy) / 2),
    }[shape.layout]
    return {"waits for rollouts": waits * sampling / chain, "waits for the judge": waits * judging / chain, **updates}


def _slowest(number: int, spread: float) -> float:
    """The expected maximum of so many log-normal values of mean 1 (Blom's approximation)."""
    quantile = (number - 0.375) / (number + 0.25)
    return math.exp(spread * NormalDist().inv_cdf(quantile) - spread * spread / 2)
