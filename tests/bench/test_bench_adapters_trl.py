"""A batch of TRL's through the adapter, against the same attempts played and judged without it: make bench-adapters.

The tutor writes in a real tokenizer's tokens, so that no model's time hides the adapter's.
"""

from types import SimpleNamespace

import pytest

from rubricem_agent.adapters.credit import stage_advantages
from rubricem_env.adapters.session import offline_scorer
from tests.bench.adapter_attempts import ATTEMPTS_MADE, QUERY


@pytest.mark.benchmark(group="TRL: a group of four in tokens, judged")
@pytest.mark.parametrize("is_through_the_adapter", [False, True], ids=["bare", "rollout_func"])
def test_bench_trl(benchmark, is_through_the_adapter, loop):
    adapter = pytest.importorskip("rubricem_agent.adapters.trl", reason="needs TRL", exc_type=ValueError)
    tiny = pytest.importorskip("rubricem_env.testing.tiny_model", reason="needs transformers")
    tutored = pytest.importorskip("docs.adapters.tutored_policy")
    tokenizer = tiny.tiny_tokenizer(["".join(turns) for turns in ATTEMPTS_MADE], vocab_size=600)
    trainer = SimpleNamespace(
        processing_class=tokenizer,
        args=SimpleNamespace(mask_truncated_completions=False),
        model=SimpleNamespace(training=True),
        num_generations=4,
    )
    play, scorer = tutored.play_tutored(), offline_scorer([QUERY])
    spec = adapter.TrlSpec(play=play, scorer=scorer, advantages=stage_advantages, queries=[QUERY])
    prompts = [[{"role": "user", "content": QUERY.question}]] * 4

    async def bare():
        attempts = await play([QUERY] * 4, trainer)
        return await scorer.score([attempt.trajectory for attempt in attempts])

    def run():
        return spec.rollout_func(prompts, trainer) if is_through_the_adapter else loop.run(bare())

    benchmark.pedantic(run, rounds=40, warmup_rounds=3)
    spec.close()
