"""Measure the log-prob and loss step at Qwen3-8B's head on one GPU: python tests/bench/gpu_loss.py [--json FILE].

The head and the loss only, forward and backward: hidden 4,096, vocabulary 151,936, one sequence of 26,624 tokens
in bf16. The tiled head against the plain one, as a share of the copy bandwidth and of the bf16 matrix rate that
the same run measures on the same card. Prints one JSON object. Needs torch with CUDA, pydantic and gymnasium.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from trainers.local.logprobs import EAGER, HeadKernels, compiled_kernels, token_logprobs
from trainers.local.loss import LossSettings, PolicyTokens, policy_loss

WIDTH, VOCABULARY, LENGTH = 4096, 151_936, 26_624
Head = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
GIB = 2**30


def milliseconds(step: Callable[[], object], repeats: int) -> list[float]:
    """Device times of `step` after two unmeasured calls."""
    times = []
    for turn in range(repeats + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        if turn >= 2:
            times.append(start.elapsed_time(end))
    return times


def ceilings() -> dict[str, float]:
    """What this card reaches: bytes read and written by a large copy, bf16 operations of a large product."""
    source = torch.randint(0, 255, (4 * GIB,), dtype=torch.uint8, device="cuda")
    sink = torch.empty_like(source)
    copy = statistics.median(milliseconds(lambda: sink.copy_(source), 10))
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = statistics.median(milliseconds(lambda: left @ right, 20))
    shaped = torch.randn(LENGTH, WIDTH, device="cuda", dtype=torch.bfloat16)
    block = torch.randn(WIDTH, 8192, device="cuda", dtype=torch.bfloat16)
    at_shape = statistics.median(milliseconds(lambda: shaped @ block, 20))
    return {
        "copy_tb_per_s": 2 * source.numel() / copy / 1e9,
        "bf16_tflop_per_s": 2 * 8192**3 / product / 1e9,
        "bf16_tflop_per_s_at_a_tile": 2 * LENGTH * WIDTH * 8192 / at_shape / 1e9,
    }


def plain(hidden: Tensor, head: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """All logits at once, as is usual; entropy without gradient, since it is only reported."""
    logits = (hidden @ head.T).float() / temperature[:, None]
    spread = logits.log_softmax(-1)
    with torch.no_grad():
        entropy = -(spread.exp() * spread).sum(-1)
    return spread.gather(1, targets[:, None])[:, 0], entropy


def plain_without_entropy(hidden: Tensor, head: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    logits = (hidden @ head.T).float() / temperature[:, None]
    return logits.log_softmax(-1).gather(1, targets[:, None])[:, 0], torch.zeros_like(temperature)


def tiled(kernels: HeadKernels, tile_elements: int) -> Head:
    def head_of(hidden: Tensor, head: Tensor, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
        return token_logprobs(
            hidden, head, targets=targets, temperature=temperature, tile_elements=tile_elements, kernels=kernels
        )

    return head_of


def inputs(length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random hidden states and head whose logits have a standard deviation of about 2."""
    hidden = torch.randn(length, WIDTH, device="cuda", dtype=torch.bfloat16).requires_grad_()
    head = (torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16) * (2 / WIDTH**0.5)).requires_grad_()
    targets = torch.randint(0, VOCABULARY, (length,), device="cuda")
    return hidden, head, targets, torch.ones(length, device="cuda")


def loss_of(logprobs: Tensor, entropy: Tensor, noise: Tensor) -> Tensor:
    """The loss on made-up old, reference and rollout log-probabilities close to the new ones."""
    old = logprobs.detach()
    length = len(noise)
    stage_ids = torch.arange(length, device="cuda") * 4 // length
    tokens = PolicyTokens(logprobs, old + noise, old - noise, old, noise * 10, stage_ids, entropy)
    return policy_loss(tokens, settings=LossSettings(), denominator=length).loss


def errors(head_of: Head, length: int = 512) -> dict[str, float]:
    """Relative distance from the same step in float64, of the log-probabilities and both gradients."""
    torch.manual_seed(1)
    hidden, head, targets, temperature = inputs(length)
    temperature = temperature * 0.7
    noise = torch.randn(length, device="cuda") * 0.1
    exact_hidden, exact_head = (values.detach().double().requires_grad_() for values in (hidden, head))
    exact = (exact_hidden @ exact_head.T / temperature.double()[:, None]).log_softmax(-1)
    chosen = exact.gather(1, targets[:, None])[:, 0]
    loss_of(chosen, -(exact.detach().exp() * exact.detach()).sum(-1), noise.double()).backward()
    logprobs, entropy = head_of(hidden, head, targets, temperature)
    loss_of(logprobs, entropy, noise).backward()
    pairs = {"logprobs": (logprobs, chosen), "grad_hidden": (hidden.grad, exact_hidden.grad)}
    pairs["grad_head"] = (head.grad, exact_head.grad)
    return {name: float((got.double() - want).norm() / want.norm()) for name, (got, want) in pairs.items()}


def measure(head_of: Head, length: int, repeats: int = 5) -> dict[str, float]:
    """Median time of forward and of forward with backward, and the most memory held above the inputs."""
    torch.cuda.empty_cache()
    hidden, head, targets, temperature = inputs(length)
    noise = torch.randn(length, device="cuda") * 0.1
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        hidden.grad = head.grad = None
        loss_of(*head_of(hidden, head, targets, temperature), noise).backward()

    def forward() -> None:
        with torch.no_grad():
            loss_of(*head_of(hidden, head, targets, temperature), noise)

    times = milliseconds(step, repeats)
    peak = torch.cuda.max_memory_allocated()
    ahead = statistics.median(milliseconds(forward, repeats))
    whole = statistics.median(times)
    return {
        "length": length, "ms": whole, "ms_min": min(times), "ms_max": max(times), "forward_ms": ahead,
        "tokens_per_s": length / whole * 1e3, "peak_gib": peak / GIB, "peak_above_inputs_gib": (peak - held) / GIB,
    }  # fmt: skip


def with_shares(figures: dict[str, float], products: int, limits: dict[str, float]) -> dict[str, float]:
    """Add the operations done (`products` matrix products) and the fewest bytes, as shares of the ceilings."""
    length, seconds = figures["length"], figures["ms"] / 1e3
    operations = 2 * length * VOCABULARY * WIDTH
    fewest_bytes = 2 * WIDTH * 3 * (length + VOCABULARY)  # hidden and head: read forward, read backward, gradient
    return figures | {
        "matrix_share": operations * products / seconds / 1e12 / limits["bf16_tflop_per_s"],
        "useful_matrix_share": operations * 3 / seconds / 1e12 / limits["bf16_tflop_per_s"],
        "fewest_bytes_bandwidth_share": fewest_bytes / seconds / 1e12 / limits["copy_tb_per_s"],
    }


def longest_that_fits(head_of: Head, step: int = 1024) -> tuple[int, dict[str, float]]:
    """The longest multiple of `step` up to LENGTH that one step of `head_of` fits, with its figures."""
    low, high, best = 0, LENGTH // step, {}
    while low < high:
        middle = (low + high + 1) // 2
        try:
            best = measure(head_of, middle * step)
            low = middle
        except torch.OutOfMemoryError:
            high = middle - 1
    return low * step, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    target = parser.parse_args().json
    torch.manual_seed(0)
    limits = ceilings()
    figures: dict[str, object] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "limits": limits}

    def note(name: str, value: object) -> None:
        figures[name] = value
        print(name, json.dumps(value), file=sys.stderr, flush=True)  # noqa: T201

    compiled = compiled_kernels()
    variants = {f"tiled, eager, 2^{power}": tiled(EAGER, 2**power) for power in (27, 28, 30)}
    variants |= {f"tiled, compiled, 2^{power}": tiled(compiled, 2**power) for power in (27, 28, 30)}
    note("errors, plain", errors(plain))
    note("errors, tiled, eager", errors(tiled(EAGER, 2**24)))
    note("errors, tiled, compiled", errors(tiled(compiled, 2**24)))
    for name, head_of in variants.items():
        note(name, with_shares(measure(head_of, LENGTH), 4, limits))
    for name, head_of in {"plain": plain, "plain, no entropy": plain_without_entropy}.items():
        length, found = longest_that_fits(head_of)
        note(f"{name}, longest", with_shares(found, 3, limits))
        note(
            f"tiled, compiled, 2^28 at {length}",
            with_shares(measure(variants["tiled, compiled, 2^28"], length), 4, limits),
        )
    report = json.dumps(figures, indent=1)
    print(report)  # noqa: T201
    if target:
        target.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
