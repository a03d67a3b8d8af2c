"""Passes padded to few shapes have the same logits. The graphs themselves need a GPU: `make gpu-lane`."""

from typing import ClassVar

import torch

from rubricem_agent.policy.cuda_graphs import GraphedPasses, inputs_of, padded_shape
from rubricem_agent.policy.decoder import Feed
from rubricem_agent.policy.dense_decoder import DenseDecoder
from rubricem_env.testing.tiny_model import tiny_qwen3


class EagerPass:
    """Computes again what a graph would replay, on inputs that are overwritten in place."""

    captured: ClassVar[list["EagerPass"]] = []

    def __init__(self, run, step):
        self._run, self._step = run, step
        self.captured.append(self)

    def replay(self, inputs):
        for mine, given in zip(inputs_of(self._step), inputs, strict=True):
            mine.copy_(given)
        return self._run(self._step)


def with_graphs(model) -> DenseDecoder:
    decoder = DenseDecoder(model, rows=8, max_length=3_000)
    decoder._graphs = GraphedPasses(model, decoder._run, EagerPass)
    EagerPass.captured.clear()
    return decoder


def test_padded_passes_have_the_logits_of_others_for_any_rows_widths_and_lengths():
    model = tiny_qwen3(300)
    plain, graphed = DenseDecoder(model, rows=8, max_length=3_000), with_graphs(model)
    rng = torch.Generator().manual_seed(0)
    read = [0] * 8
    for step in range(30):
        rows = sorted(torch.randperm(8, generator=rng)[: 1 + step % 5].tolist())
        width = 200 if step in (0, 9) else 1 + step % 3
        feeds = []
        for row in rows:
            count = min(width, 1 + row) if step % 4 else width
            ids = torch.randint(300, (count,), generator=rng).tolist()
            feeds.append(Feed(row, read[row], ids, wanted=min(count, 2)))
            read[row] += count
        torch.testing.assert_close(graphed.logits(feeds), plain.logits(feeds), atol=1e-5, rtol=0)


def test_one_shape_is_captured_once_and_again_when_the_cache_or_a_weight_has_moved():
    model = tiny_qwen3(300)
    decoder = with_graphs(model)
    decoder.logits([Feed(row, 0, [5, 6, 7]) for row in range(5)])
    assert len(EagerPass.captured) == 1
    for start in range(3, 40):
        decoder.logits([Feed(row, start, [9]) for row in range(start % 2, 5)])
    assert len(EagerPass.captured) == 2
    decoder.logits([Feed(0, 40, [7] * 1_000)])
    decoder.logits([Feed(4, 40, [9])])
    assert len(EagerPass.captured) == 3
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    decoder.logits([Feed(4, 41, [9])])
    decoder.logits([Feed(4, 42, [9])])
    assert len(EagerPass.captured) == 4


def test_rows_are_padded_to_a_power_of_two_and_positions_to_a_multiple_within_the_cache():
    shape = padded_shape([Feed(1, 600, [1]), Feed(4, 30, [1, 2])], held=6, capacity=800)
    assert shape == (range(6), 2, 800)
    assert padded_shape([Feed(2, 5, [1])], held=64, capacity=2_048) == (range(4), 1, 512)
