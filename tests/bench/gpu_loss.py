"""Measure the log-prob and loss step at Qwen3-8B's head on one GPU: python tests/bench/gpu_loss.py [--json FILE].

With --rehearse the same code runs small on a CPU, to see that it runs; its figures mean nothing.

The head and the loss only, forward and backward: hidden 4,096, vocabulary 151,936, one sequence of 26,624 tokens
in bf16. The tiled head against the plain one, as a share of the copy bandwidth and of the bf16 matrix rate that
the same run measures on the same card. Prints one JSON object. Needs torch with CUDA, pydantic and gymnasium.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from trainers.local.learner import LossSettings, PolicyTokens, policy_loss
from trainers.local.packed import token_logprobs

GIB = 2**30


class Inputs(NamedTuple):
    """What a head is given."""

    hidden: Tensor
    head: Tensor
    targets: Tensor
    temperature: Tensor


Head = Callable[[Inputs], tuple[Tensor, Tensor]]


class Shape(NamedTuple):
    """What is measured, and where."""

    width: int
    vocabulary: int
    length: int
    device: str
    tile_powers: tuple[int, ...]


FULL = Shape(4096, 151_936, 26_624, "cuda", (27, 28, 30))
REHEARSAL = Shape(32, 1_024, 2_048, "cpu", (14, 16))


def milliseconds(step: Callable[[], object], repeats: int) -> list[float]:
    """Times of `step` after two unmeasured calls; the device's own clock where it has one."""
    times = []
    for turn in range(repeats + 2):
        elapsed = _timed_on_gpu(step) if torch.cuda.is_available() else _timed_on_cpu(step)
        if turn >= 2:
            times.append(elapsed)
    return times


def _timed_on_gpu(step: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _timed_on_cpu(step: Callable[[], object]) -> float:
    start = time.perf_counter()
    step()
    return (time.perf_counter() - start) * 1e3


def ceilings(shape: Shape) -> dict[str, float]:
    """What this card reaches: bytes read and written by a large copy, bf16 operations of a large product."""
    side, size = (8192, 4 * GIB) if shape.device == "cuda" else (256, 2**20)
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=shape.device)
    sink = torch.empty_like(source)
    copy = statistics.median(milliseconds(lambda: sink.copy_(source), 10))
    left, right = (torch.randn(side, side, device=shape.device, dtype=torch.bfloat16) for _ in range(2))
    product = statistics.median(milliseconds(lambda: left @ right, 20))
    return {"copy_tb_per_s": 2 * size / copy / 1e9, "bf16_tflop_per_s": 2 * side**3 / product / 1e9}


def plain(given: Inputs) -> tuple[Tensor, Tensor]:
    """All logits at once, as is usual; entropy without gradient, since it is only reported."""
    spread = _spread(given)
    with torch.no_grad():
        entropy = -(spread.exp() * spread).sum(-1)
    return spread.gather(1, given.targets[:, None])[:, 0], entropy


def plain_without_entropy(given: Inputs) -> tuple[Tensor, Tensor]:
    logprobs = _spread(given).gather(1, given.targets[:, None])[:, 0]
    return logprobs, torch.zeros_like(logprobs)


def _spread(given: Inputs) -> Tensor:
    return ((given.hidden @ given.head.T).float() / given.temperature[:, None]).log_softmax(-1)


def tiled(tile_elements: int) -> Head:
    def head_of(given: Inputs) -> tuple[Tensor, Tensor]:
        hidden, head, targets, temperature = given
        return token_logprobs(hidden, head, targets=targets, temperature=temperature, tile_elements=tile_elements)

    return head_of


def inputs(shape: Shape, length: int) -> Inputs:
    """Random hidden states and head whose logits have a standard deviation of about 2."""
    place = {"device": shape.device, "dtype": torch.bfloat16}
    hidden = torch.randn(length, shape.width, **place)
    head = torch.randn(shape.vocabulary, shape.width, **place) * (2 / shape.width**0.5)
    targets = torch.randint(0, shape.vocabulary, (length,), device=shape.device)
    return Inputs(hidden.requires_grad_(), head.requires_grad_(), targets, torch.ones(length, device=shape.device))


def loss_of(made: tuple[Tensor, Tensor], noise: Tensor) -> Tensor:
    """The loss on made-up old, reference and rollout log-probabilities close to the new ones."""
    (logprobs, entropy), length = made, len(noise)
    old = logprobs.detach()
    stage_ids = torch.arange(length, device=noise.device) * 4 // length
    tokens = PolicyTokens(logprobs, old + noise, old - noise, old, noise * 10, stage_ids, entropy)
    return policy_loss(tokens, settings=LossSettings(), denominator=length)[0]


def errors(shape: Shape, head_of: Head) -> dict[str, float]:
    """Relative distance from the same step in float64 at 512 tokens, of the log-probabilities and both gradients."""
    torch.manual_seed(1)
    drawn = inputs(shape, 512)
    given = drawn._replace(temperature=drawn.temperature * 0.7)
    noise = torch.randn(512, device=shape.device) * 0.1
    hidden, head = (values.detach().double().requires_grad_() for values in (given.hidden, given.head))
    spread = (hidden @ head.T / given.temperature.double()[:, None]).log_softmax(-1)
    exact = spread.gather(1, given.targets[:, None])[:, 0], torch.zeros_like(noise).double()
    loss_of(exact, noise.double()).backward()
    made = head_of(given)
    loss_of(made, noise).backward()
    pairs = {"logprobs": (made[0], exact[0]), "grad_hidden": (given.hidden.grad, hidden.grad)}
    pairs["grad_head"] = (given.head.grad, head.grad)
    return {name: ((got.double() - want).norm() / want.norm()).item() for name, (got, want) in pairs.items()}


def measure(shape: Shape, head_of: Head, *, length: int) -> dict[str, float]:
    """Median time of forward and of forward with backward, and the most memory held above the inputs."""
    torch.cuda.empty_cache()
    given, noise = inputs(shape, length), torch.randn(length, device=shape.device) * 0.1
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats() if shape.device == "cuda" else None

    def step() -> None:
        given.hidden.grad = given.head.grad = None
        loss_of(head_of(given), noise).backward()

    def forward() -> None:
        with torch.no_grad():
            loss_of(head_of(given), noise)

    times = milliseconds(step, 5)
    peak = torch.cuda.max_memory_allocated()
    whole = statistics.median(times)
    figures = {"length": length, "ms": whole, "ms_min": min(times), "ms_max": max(times)}
    figures |= {"forward_ms": statistics.median(milliseconds(forward, 5)), "tokens_per_s": length / whole * 1e3}
    return figures | {"peak_gib": peak / GIB, "peak_above_inputs_gib": (peak - held) / GIB}


def with_shares(
    shape: Shape, figures: dict[str, float], *, products: int, limits: dict[str, float]
) -> dict[str, float]:
    """Add the operations done (`products` matrix products) and the fewest bytes, as shares of the ceilings."""
    length, seconds = figures["length"], figures["ms"] / 1e3
    operations = 2 * length * shape.vocabulary * shape.width
    fewest_bytes = 2 * shape.width * 3 * (length + shape.vocabulary)  # read forward, read backward, write the gradient
    return figures | {
        "matrix_share": operations * products / seconds / 1e12 / limits["bf16_tflop_per_s"],
        "useful_matrix_share": operations * 3 / seconds / 1e12 / limits["bf16_tflop_per_s"],
        "fewest_bytes_bandwidth_share": fewest_bytes / seconds / 1e12 / limits["copy_tb_per_s"],
    }


def longest_that_fits(shape: Shape, head_of: Head, *, step: int = 1024) -> dict[str, float]:
    """Figures at the longest multiple of `step`, up to the shape's length, that one step of `head_of` fits."""
    low, high, best = 0, shape.length // step, {"length": 0.0, "ms": math.inf}
    middle = high  # all of it first
    while low < high:
        try:
            best = measure(shape, head_of, length=middle * step)
            low = middle
        except torch.OutOfMemoryError:
            high = middle - 1
        middle = (low + high + 1) // 2
    return best


class Notes:
    """Figures as they come: on stderr at once, in one JSON object at the end."""

    def __init__(self, first: dict[str, object]) -> None:
        self.figures = first

    def add(self, what: str, value: dict[str, float]) -> None:
        self.figures[what] = value
        print(what, json.dumps(value), file=sys.stderr, flush=True)  # noqa: T201


def measure_all(shape: Shape, notes: Notes, *, limits: dict[str, float]) -> None:
    notes.add("errors, plain", errors(shape, plain))
    notes.add("errors, tiled", errors(shape, tiled(2 ** (shape.tile_powers[0] - 3))))
    for power in shape.tile_powers:
        found = measure(shape, tiled(2**power), length=shape.length)
        notes.add(f"tiled, 2^{power}", with_shares(shape, found, products=4, limits=limits))
    for what, head_of in {"plain": plain, "plain without entropy": plain_without_entropy}.items():
        found = longest_that_fits(shape, head_of)
        notes.add(f"{what}, longest that fits", with_shares(shape, found, products=3, limits=limits))
        if found["length"]:
            beside = measure(shape, tiled(2 ** shape.tile_powers[1]), length=int(found["length"]))
            notes.add(f"tiled, as long as {what}", with_shares(shape, beside, products=4, limits=limits))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--rehearse", action="store_true", help="small, on a CPU, to see that it runs")
    arguments = parser.parse_args()
    shape = REHEARSAL if arguments.rehearse else FULL
    torch.manual_seed(0)
    limits = ceilings(shape)
    name = torch.cuda.get_device_name() if shape.device == "cuda" else "CPU (a rehearsal)"
    notes = Notes({"device": name, "torch": torch.__version__, "limits": limits})
    measure_all(shape, notes, limits=limits)
    report = json.dumps(notes.figures, indent=1)
    print(report)  # noqa: T201
    if arguments.json:
        arguments.json.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
