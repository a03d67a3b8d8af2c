"""What a step needs of the judge's quota, against numbers worked out by hand."""

import re
from collections.abc import Callable

import pytest

from trainers.verl_backend.planning.quota import judge_bottleneck, judge_need
from trainers.verl_backend.planning.run_shape import KNOWN, Assumptions, RunShape

QWEN = KNOWN["qwen3-8b"]
Recipe = Callable[..., RunShape]


def test_a_step_at_its_largest_has_the_tokens_that_were_measured(recipe: Recipe) -> None:
    need = judge_need(recipe(), Assumptions())

    # 32 x (8 x 19,400 + 1,200) + 256 x (19,400 + 700 + 720) + 32 x (19,400 + 700 + 8 x 500); 32 reflections, not 16.
    assert need.calls == 32 + 256 + 32
    assert need.input_tokens == 32 * 156_400 + 256 * 20_820 + 32 * 24_100
    # With 500 of thought each: 1,200 of a proposal, 720 of 12 scores, 8 x 180 of a reflection's.
    assert need.output_tokens == 32 * 1_700 + 256 * 1_220 + 32 * 1_940


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([], ""),
        (["rubricem.judge.rates.tokens_per_minute=null"], "up to 11.5 million tokens in 320 calls, and .* no quota"),
        (["rubricem.judge.rates.tokens_per_minute=1000000"], "take 692 s at rubricem.judge.rates"),
        (["rubricem.judge.rates.input_tokens_per_minute=1000000"], "take 666 s"),
        (["rubricem.judge.rates.output_tokens_per_minute=20000"], "take 1286 s"),
        (["rubricem.judge.rates.requests_per_minute=20"], "take 960 s"),
        (["rubricem.judge.judge='openai:own@http://judge-0/v1'", "rubricem.judge.rates.tokens_per_minute=1"], ""),
    ],
)
def test_rates_that_bind_the_step_are_named(changes: list[str], said: str, recipe: Recipe) -> None:
    found = judge_bottleneck(recipe(*changes), QWEN, Assumptions())
    assert re.search(said, found) if said else found == "", found
