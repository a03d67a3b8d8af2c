"""Memory, calls, money and hours, against numbers worked out by hand."""

import json
import math
from collections.abc import Callable

import pytest

from rubricem_agent.wiring.prices import list_prices
from rubricem_env.domain.errors import ConfigError
from rubricem_env.llm.prices import FLASH
from tests.trainers.verl_backend.planning.conftest import CONFIGS, RECIPE
from trainers.verl_backend.planning.estimate import (
    GIB,
    MemoryPlan,
    PhaseTimes,
    estimate_step,
    estimate_times,
    plan_calls,
    plan_memory,
    refuse_small_gpu,
    search_seconds,
)
from trainers.verl_backend.planning.plan import make_plan, print_plan, search_bottleneck
from trainers.verl_backend.planning.run_shape import KNOWN, Assumptions, RunShape, with_changes

QWEN = KNOWN["qwen3-8b"]
ALIKE = Assumptions(spread=0.0, node_gib=1e9, network_gib=1e9, host_gib=1e9)
"""All lengths and times are the mean, and no byte takes time."""
Recipe = Callable[..., RunShape]
TODAY = list_prices()[FLASH]
"""$0.75 and $3.75 until the end of 2026; genai-prices, where it is installed, knows what follows."""


def part(memory: MemoryPlan, what: str) -> float:
    return next(gib for name, gib in {**memory.training, **memory.sampling}.items() if name.startswith(what))


def test_weights_gradients_and_moments_are_sharded_over_all_gpus(recipe: Recipe) -> None:
    memory = plan_memory(recipe("trainer.nnodes=2"), QWEN, Assumptions())

    # 8.19 billion parameters, 4 + 4 + 8 bytes each, over 16 GPUs.
    assert part(memory, "weights, sharded") == pytest.approx(4 * 8_190_735_360 / 16 / GIB)
    assert part(memory, "gradients") == part(memory, "weights, sharded")
    assert part(memory, "optimiser's moments") == 2 * part(memory, "weights, sharded")
    on_host = recipe("actor_rollout_ref.actor.fsdp_config.offload_policy=true")
    assert part(plan_memory(on_host, QWEN, Assumptions()), "weights, sharded") == 0


def test_the_cache_is_what_the_engines_share_leaves_beside_weights_and_graphs(recipe: Recipe) -> None:
    memory = plan_memory(recipe(), QWEN, Assumptions(gpu_gib=80, engine_overhead_gib=3))

    weights = 2 * 8_190_735_360 / GIB
    assert part(memory, "cache") == pytest.approx(0.75 * 80 - weights - 3)
    assert memory.cached_tokens == int((0.75 * 80 - weights - 3) * GIB / 147_456)


def test_what_is_offloaded_lies_on_the_host_with_the_frozen_reference(recipe: Recipe) -> None:
    offloaded = plan_memory(recipe("trainer.nnodes=2"), QWEN, Assumptions())
    kept = recipe(
        "trainer.nnodes=2",
        "actor_rollout_ref.actor.fsdp_config.param_offload=false",
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=false",
    )
    resident = plan_memory(kept, QWEN, Assumptions())

    node = 8_190_735_360 / 2 / GIB
    assert offloaded.host_gib == pytest.approx((4 + 4 + 8 + 4) * node)
    assert resident.host_gib == pytest.approx(4 * node)
    assert part(offloaded, "weights and moments of training") == 0
    assert part(resident, "weights and moments of training") == pytest.approx((4 + 8) * node / 8)


@pytest.mark.parametrize(
    ("assumed", "changes", "said"),
    [
        (Assumptions(gpu_gib=24), [], "a GPU of 24 GiB is too small: training needs 25 GiB on each of 32"),
        (
            Assumptions(),
            [
                "actor_rollout_ref.actor.ulysses_sequence_parallel_size=1",
                "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=40000",
            ],
            "57 of them for logits",
        ),
        (Assumptions(), ["actor_rollout_ref.rollout.gpu_memory_utilization=0.95"], "sampling needs 81 GiB"),
        (Assumptions(gpu_gib=28), [], "the engine's cache holds 19978 tokens and the longest sequence has 26624"),
    ],
)
def test_a_gpu_too_small_is_refused_with_what_takes_the_memory(
    assumed: Assumptions, changes: list[str], said: str, recipe: Recipe
) -> None:
    shape = recipe(*changes)
    with pytest.raises(ConfigError, match=said):
        refuse_small_gpu(plan_memory(shape, QWEN, assumed), shape, assumed.gpu_gib)


def test_the_plan_is_shown_for_16_and_32_gpus_before_it_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="is too small"):
        print_plan(RECIPE, assumptions=["gpu_gib=20"])
    shown = capsys.readouterr().out
    sections = ("16 GPUs", "32 GPUs", "training GiB of a GPU", "dollars of the run")
    for words in (*sections, "list prices", f"price of {FLASH}: ${TODAY.input:g} read"):
        assert words in shown


def test_calls_of_a_step_are_the_papers_and_their_money_follows_from_the_prices(recipe: Recipe) -> None:
    assumed = Assumptions(searches=5, google_share=0.5)
    kinds = plan_calls(recipe(), assumed)
    ensemble = plan_calls(recipe("rubricem.judge.also=[gemini:gemini-2.5-flash]"), assumed)
    assert len(ensemble) == len(kinds) + 3
    # The second judge proposes where the first cannot, or by choice; it scores attempts and reflections always.
    second = [kind.calls for kind in ensemble if "gemini-2.5-flash" in kind.what]
    assert second == [0, *(kind.calls for kind in kinds[1:3])]
    together = recipe("rubricem.judge.also=[gemini:gemini-2.5-flash]", "rubricem.judge.proposers=all")
    proposals = [kind.calls for kind in plan_calls(together, assumed) if "rubrics" in kind.what]
    assert proposals == [32, 32]
    calls = {kind.what: kind.calls for kind in kinds}

    assert calls == {
        "judge: rubrics (gemini-3.8-flash)": 32,
        "judge: scores (gemini-3.8-flash)": 256,
        "judge: reflections (gemini-3.8-flash)": 16,  # 32 in each of the new half of the steps
        "google_search (gemini-3.8-flash)": 640,
        "snippet_search (semantic_scholar)": 640,
    }
    scoring = next(kind for kind in kinds if "scores" in kind.what)
    # 6,500 written and 5 x 800 of tools, 700 of prompt, 12 rubrics of 60; out: 12 scores of 60 and 500 of thought.
    assert (scoring.input_tokens, scoring.output_tokens) == (6_500 + 4_000 + 700 + 720, 720 + 500)
    assert scoring.dollars == pytest.approx(256 * (11_920 * TODAY.input + 1_220 * TODAY.output) / 1e6)


def test_a_model_without_a_price_makes_the_sum_unknown_and_not_free(recipe: Recipe) -> None:
    plan = make_plan(recipe("rubricem.judge.judge=openai:mine@https://judge.example/v1"), QWEN, ALIKE)

    assert [plan[section]["total"] for section in ("dollars of a step", "dollars of the run")] == [None, None]


@pytest.mark.parametrize(
    ("url", "is_free"),
    [
        ("http://judge-0:8000/v1,http://judge-1:8000/v1", True),
        ("http://10.0.0.7:8000/v1", True),
        ("http://judge.svc.cluster.local:8000/v1", True),
        ("http://judge-0:8000/v1,https://api.example.com/v1", False),
        ("https://8.8.8.8/v1", False),
    ],
)
def test_a_judge_on_own_servers_costs_its_gpus_alone(url: str, is_free: bool, recipe: Recipe) -> None:
    shape = recipe(f"rubricem.judge.judge='openai:own/model@{url}'", "rubricem.tools.backend=offline")
    # A million tokens a second: what is read takes no time. 32 proposals of 1,200 tokens, 256 scorings of 12 x 60, and
    # 16 x 8 x 3 x 60 for reflections, at 100 a second of a GPU, within 70 + 35 seconds.
    assumed = Assumptions(judge_read_tokens=1e12, judge_written_tokens=100, thought_tokens=0)
    plan = make_plan(shape, QWEN, assumed)
    assert plan["dollars of a step"]["total"] == (0 if is_free else None)
    if not is_free:
        assert plan["judges on own servers"] == {}
        return
    seconds = (32 * 1_200 + 256 * 12 * 60 + shape.reflected * 8 * 3 * 60) / 100
    assert plan["judges on own servers"] == {"GPUs": math.ceil(seconds / 105)}
    rent = plan["dollars of the run"]["judges' GPUs"]
    assert rent == pytest.approx(plan["run"]["hours"] * math.ceil(seconds / 105) * 2.5)


def test_rules_and_offline_tools_cost_nothing(recipe: Recipe) -> None:
    plan = make_plan(recipe("rubricem.judge.judge=rules", "rubricem.tools.backend=offline"), QWEN, ALIKE)

    assert plan["dollars of a step"]["total"] == 0
    assert plan["dollars of the run"]["total"] == plan["dollars of the run"]["GPUs"]


@pytest.mark.parametrize(
    ("changes", "dollars"),
    [
        (["rubricem.tools.google_search={engine: plain}"], 256 * 6 * 0.001),
        # A tool server pays its engines too: 0.014 a search, 100 tokens in and 1,000 out at what a million costs.
        (
            ["rubricem.tools.backend=offline", "rubricem.tools.remote={url: 'http://tools/mcp'}"],
            256 * 6 * (0.014 + (100 * TODAY.input + 1_000 * TODAY.output) / 1e6),
        ),
        (["rubricem.tools.replay=record.jsonl"], 0),
    ],
)
def test_searches_cost_what_their_engine_takes(changes: list[str], dollars: float, recipe: Recipe) -> None:
    kinds = plan_calls(recipe(*changes), Assumptions(google_share=1))

    assert kinds[-2].dollars == pytest.approx(dollars)


def test_training_takes_as_long_as_its_operations_and_half_as_long_on_twice_the_gpus(recipe: Recipe) -> None:
    two, four = (estimate_times(recipe(f"trainer.nnodes={nodes}"), QWEN, ALIKE, layout="async") for nodes in (2, 4))

    sequence = 3_000 + 6_500 + 6 * 800
    token = 2 * 8_190_735_360 + 2 * 36 * 32 * 128 * sequence
    assert two.task_seconds == pytest.approx(256 * sequence * token * 6 / (16 * 297e12))
    assert four.task_seconds == pytest.approx(two.task_seconds / 2)
    assert four.engine_speed == 2 * two.engine_speed


def test_apart_half_of_the_gpus_sample_and_half_train(recipe: Recipe) -> None:
    together = estimate_times(recipe(), QWEN, ALIKE, layout="async")
    apart = estimate_times(recipe(), QWEN, ALIKE, layout="separate")

    assert apart.task_seconds == pytest.approx(2 * together.task_seconds)
    assert apart.engine_speed == together.engine_speed / 2


TIMES = PhaseTimes(
    engine_speed=1_000,
    sequence_speed=10,
    written_tokens=100,
    longest_tokens=100,
    searches=2,
    tool_seconds=3,
    propose_seconds=4,
    score_seconds=2,
    task_seconds=7,
    lesson_seconds=6,
    swap_seconds=1,
    reflect_seconds=0,
    reflection_tokens=0,
    spread=0,
)
"""256 attempts write 25,600 tokens in 25.6 s; one attempt takes 10 + 2 x 3 = 16 s, its judgement 4 + 2 = 6 s."""


@pytest.mark.parametrize(
    ("mode", "waits"),
    [
        ("rubricem_sync", 25.6 + 6),
        # The engine samples a step's tokens in each wait; a group is finished within two.
        ("rubricem_async", 25.6),
        # Sampling continues during the 7 + 6 / 2 + 1 seconds of updates.
        ("rubricem_separate", 25.6 - 11),
    ],
)
def test_a_step_waits_for_what_takes_longest(mode: str, waits: float, recipe: Recipe) -> None:
    step = estimate_step(TIMES, recipe(f"trainer.v1.trainer_mode={mode}"))

    assert step["waits for rollouts"] + step["waits for the judge"] == pytest.approx(waits, abs=0.1)
    # Reflections come in every other window of steps.
    assert (step["trains on reflections"], step["trains on rollouts"], step["swaps"]) == (3, 7, 1)


def test_a_judge_with_few_seats_binds_the_step(recipe: Recipe) -> None:
    busy = TIMES.model_copy(update={"judge_seats": 4})
    step = estimate_step(busy, recipe("trainer.v1.trainer_mode=rubricem_sync"))

    # 32 proposals of 4 s and 256 scores of 2 s, four at a time.
    assert step["waits for the judge"] == pytest.approx((32 * 4 + 256 * 2) / 4)


def test_unequal_lengths_make_a_step_wait_for_its_slowest_attempt(recipe: Recipe) -> None:
    slow = TIMES.model_copy(update={"spread": 0.5, "longest_tokens": 1_000, "engine_speed": 1e6})
    step = estimate_step(slow, recipe("trainer.v1.trainer_mode=rubricem_sync"))

    # The expected maximum of 256 log-normal lengths of mean 100 and spread 0.5 is 100 exp(0.5 x 2.8 - 0.125) = 358.
    assert step["waits for rollouts"] == pytest.approx(358 / 10 + 6, rel=0.01)


def test_hours_are_the_estimated_step_times_their_number(recipe: Recipe) -> None:
    plan = make_plan(recipe("trainer.total_training_steps=720"), QWEN, ALIKE)

    hours = plan["run"]["hours"]
    assert hours == pytest.approx(plan["seconds of a step"]["total"] / 5)
    assert plan["dollars of the run"]["GPUs"] == pytest.approx(hours * 32 * 2.5)


def test_the_plan_as_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(RECIPE, ["trainer.nnodes=1"], assumptions=["searches=2"], as_json=True)
    told = capsys.readouterr().out
    document = json.loads(told)

    assert told.count("\n") == 1
    assert list(document["plans"]) == ["8", "16", "32"]
    assert document["assumed"]["searches"] == 2
    step = document["plans"]["8"]["seconds of a step"]
    assert step.pop("total") == pytest.approx(sum(step.values()))


def test_a_run_on_an_index_of_ones_own_names_no_engine_and_an_empty_section_has_no_heading(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_plan(CONFIGS / "verl_rubricem_8b_local.yaml", ["actor_rollout_ref.model.path=qwen3-8b"])
    shown = capsys.readouterr().out
    assert "google_search (own index)" in shown
    assert "snippet_search (own index)" in shown
    assert "semantic_scholar" not in shown
    assert "judges on own servers" in shown
    assert "seconds that the searches of a step need" not in shown
    print_plan(RECIPE)
    assert "judges on own servers" not in capsys.readouterr().out


def test_the_almanac_on_the_cpu_needs_no_plan(capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(CONFIGS / "verl_almanac_cpu.yaml", ["actor_rollout_ref.model.path=qwen3-0.6b"])
    assert "on the CPU" in capsys.readouterr().out


@pytest.mark.parametrize("change", ["serches=3", "searches", "cached=2", "searches=many"])
def test_an_assumption_that_is_none_is_refused(change: str) -> None:
    with pytest.raises(ConfigError, match=r"assumption|not a setting"):
        with_changes(Assumptions(), [change])


def test_the_links_set_the_time_of_an_update_where_they_are_slower_than_the_gpus(recipe: Recipe) -> None:
    slow = ALIKE.model_copy(update={"network_gib": 1.0})
    # 12 bytes a parameter, of which a GPU has one 32nd: 88.7 s a micro-batch. 8 groups of 4 GPUs have 32 sequences
    # each of 14,300 tokens; a micro-batch holds 0.85 x 26,624 tokens of them.
    seconds = 12 * QWEN.parameters * 31 / 32 / 2**30 * 32 * 14_300 / (0.85 * 26_624)
    assert estimate_times(recipe(), QWEN, slow, layout="async").task_seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("changes", "passes"),
    [
        # update, log-probabilities, reference; twice the work backward, and one to recompute
        ([], 6),
        (["algorithm.rollout_correction={bypass_mode: true, rollout_is: null}"], 5),
        (["actor_rollout_ref.actor.use_kl_loss=false"], 5),
        (["actor_rollout_ref.model.enable_gradient_checkpointing=false"], 5),
    ],
)
def test_a_pass_that_the_config_saves_is_not_planned(changes: list[str], passes: int, recipe: Recipe) -> None:
    all_six = estimate_times(recipe(), QWEN, ALIKE, layout="async")
    planned = estimate_times(recipe(*changes), QWEN, ALIKE, layout="async")
    assert planned.task_seconds == pytest.approx(all_six.task_seconds * passes / 6)
    assert planned.lesson_seconds == pytest.approx(all_six.lesson_seconds * passes / 6)


def test_without_a_reference_no_weights_wait_on_the_host(recipe: Recipe) -> None:
    kept = [f"actor_rollout_ref.actor.fsdp_config.{what}_offload=false" for what in ("param", "optimizer")]
    assert plan_memory(recipe(*kept, "actor_rollout_ref.actor.use_kl_loss=false"), QWEN, ALIKE).host_gib == 0


def test_the_plan_says_what_the_prompts_that_candidates_repeat_cost(recipe: Recipe) -> None:
    # A prompt of 3,000 + 6,500 + 6 x 800 tokens and 500 of each of the 8 candidates: 7 x 14,300 of 8 x 14,800 again.
    plan = make_plan(recipe(), QWEN, ALIKE)
    repeated, share = plan["prompts that candidates repeat"], 7 * 14_300 / (8 * 14_800)
    assert repeated["% of Phase A's tokens"] == pytest.approx(100 * share)
    assert repeated["seconds of a step"] == pytest.approx(
        share * (plan["seconds of a step"]["trains on reflections"] or 0)
    )
    one = make_plan(recipe("rubricem.reflection.num_candidates=1"), QWEN, ALIKE)
    assert one["prompts that candidates repeat"]["seconds of a step"] == 0
    none = make_plan(recipe("rubricem.meta_policy=false"), QWEN, ALIKE)
    assert none["prompts that candidates repeat"]["seconds of a step"] == 0


@pytest.mark.parametrize(
    "change",
    [
        "actor_rollout_ref.actor.fsdp_config.fsdp_size=8",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
        "rubricem.ahead=2",
    ],
)
def test_the_step_is_shorter_with_shards_within_a_node_larger_engines_or_more_steps_ahead(
    recipe: Recipe, change: str
) -> None:
    plans = [make_plan(recipe(*changes), QWEN, Assumptions(searches=0, network_gib=10)) for changes in ((), (change,))]
    before, after = (plan["seconds of a step"]["total"] or 0.0 for plan in plans)
    assert after < before - 1


def test_offloading_makes_the_swaps_longer_by_what_is_moved(recipe: Recipe) -> None:
    slow = ALIKE.model_copy(update={"host_gib": 1.0})
    times = estimate_times(recipe(), QWEN, slow, layout="async")
    # weights and moments, 12 bytes a parameter on 32 GPUs, in and out: 2 x 2.86 GiB
    assert times.swap_seconds - 30 == pytest.approx(2 * 12 * QWEN.parameters / 32 / 2**30)


def test_shards_that_do_not_divide_the_gpus_are_refused(recipe: Recipe) -> None:
    with pytest.raises(ConfigError, match=r"32 GPUs cannot be divided into actor.*fsdp_size=12"):
        recipe("actor_rollout_ref.actor.fsdp_config.fsdp_size=12")


SEARCHES = "seconds that the searches of a step need"


def test_a_search_engine_whose_rates_are_too_low_binds_the_step_and_is_named(recipe: Recipe) -> None:
    # 256 attempts search 6 times, 30 % of them for papers: 460.8 calls, one a second.
    slow = make_plan(recipe(), QWEN, Assumptions())
    assert slow[SEARCHES]["snippet_search"] == pytest.approx(460.8)
    # 1,075.2 calls of 4 s, 64 at once; 1,000 a minute would take 64.5 s.
    assert slow[SEARCHES]["google_search"] == pytest.approx(1_075.2 * 4 / 64)
    told = search_bottleneck(recipe(), QWEN, Assumptions())
    assert told.startswith("snippet_search (semantic_scholar) binds the step: its searches take 461 s at 60 a minute")
    assert "rubricem.tools.snippet_search.rates" in told

    faster = recipe("rubricem.tools.snippet_search.rates={requests_per_minute: 600, concurrency: 40}")
    fast = make_plan(faster, QWEN, Assumptions())
    assert search_bottleneck(faster, QWEN, Assumptions()) == ""
    assert (slow["seconds of a step"]["total"] or 0.0) > (fast["seconds of a step"]["total"] or 0.0) + 100


@pytest.mark.parametrize(
    "change",
    ["rubricem.tools.backend=offline", "rubricem.tools.replay=a.jsonl", "rubricem.tools.remote={url: http://t}"],
)
def test_engines_without_rates_of_this_run_are_not_planned(change: str, recipe: Recipe) -> None:
    assert make_plan(recipe(change), QWEN, Assumptions())[SEARCHES] == {}


def test_eight_cards_of_a_node_bring_weights_eight_times_as_fast_but_no_faster_than_its_own_links(
    recipe: Recipe,
) -> None:
    times = [
        estimate_times(recipe(), QWEN, ALIKE.model_copy(update={"network_gib": 1.0, "nics": nics}), layout="async")
        for nics in (1.0, 8.0, 1_000.0)
    ]
    assert times[1].task_seconds == pytest.approx(times[0].task_seconds / 8)
    within = ALIKE.model_copy(update={"network_gib": ALIKE.node_gib})
    assert times[2].task_seconds == estimate_times(recipe(), QWEN, within, layout="async").task_seconds


def test_fused_kernels_hold_the_logits_of_a_thousand_tokens(recipe: Recipe) -> None:
    fused = recipe("actor_rollout_ref.model={use_fused_kernels: true, path: qwen3-8b}")
    # 1,024 tokens x 151,936 words x 10 bytes.
    assert plan_memory(fused, QWEN, ALIKE).training["logits"] == pytest.approx(1_024 * 151_936 * 10 / 2**30)


def test_an_engine_that_stands_in_serves_what_is_too_much_for_the_first(recipe: Recipe) -> None:
    alone = recipe("rubricem.tools.snippet_search=semantic_scholar")
    both = recipe("rubricem.tools.snippet_search=[semantic_scholar, openalex]")
    # One a second, and beside it 8 at once of 4 seconds each: two a second.
    before, after = (search_seconds(run, Assumptions())["snippet_search"] for run in (alone, both))
    assert after == pytest.approx(before / 3)
    dollars = [plan_calls(run, Assumptions())[-1].dollars for run in (alone, both)]
    # 256 x 6 x 0.3 = 460.8 searches, two thirds of them at a dollar a thousand.
    assert dollars == [0.0, pytest.approx(460.8 * 2 / 3 / 1_000)]
