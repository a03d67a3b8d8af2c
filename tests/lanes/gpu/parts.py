"""The parts of the GPU lane: `python tests/lanes/gpu/parts.py NAME [--rehearse]` prints the report of one, as JSON."""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_models import EIGHT_BILLION, TINY, grow, layers_that_fit, random_model

from rubricem_agent.data.chatml import TokenSample
from rubricem_agent.learn.samples import Sample, pad_batch
from rubricem_agent.policy.base import model_folder
from rubricem_agent.policy.local import LocalPolicy, load_model, load_tokenizer
from trainers.fine_tuning.settings import SftSchedule
from trainers.fine_tuning.sft import OneProcess, make_rows, recompute_activations, train_step as sft_step
from trainers.local.learner import Learner, LossSettings
from trainers.local.packed import (
    TILE_ELEMENTS,
    SampleTokens,
    _attend,
    attend_at_once,
    logit_gradient,
    packed_spans,
    row_statistics,
    token_logprobs,
)
from trainers.local.run import make_run
from trainers.local.settings import LocalConfig
from trainers.local.ssgrpo import train_step
from trainers.settings import read_settings
from trainers.verl_backend.planning.run_shape import read_run_file, read_run_shape

ROOT = Path(__file__).parents[3]
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
Report = dict[str, Any]


def timed(call: Callable[[], object]) -> tuple[float, float | None]:
    """Seconds of a call, and the GiB that it took at most beside what was held before; None on a CPU."""
    if ON_GPU:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
    began = time.perf_counter()
    call()
    if not ON_GPU:
        return time.perf_counter() - began, None
    torch.cuda.synchronize()
    return time.perf_counter() - began, round((torch.cuda.max_memory_allocated() - held) / 2**30, 2)


def free_gib() -> float:
    return torch.cuda.mem_get_info()[0] / 2**30 if ON_GPU else 40.0


def peak_flops() -> float:
    """Operations a second of a large bf16 product on this device: what shares are measured against."""
    size = 8_192 if ON_GPU else 512
    one, other = (torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        one @ other
    repeats = 20 if ON_GPU else 3
    seconds, _ = timed(lambda: [one @ other for _ in range(repeats)])
    return repeats * 2 * size**3 / seconds


def head(rehearses: bool) -> Report:
    """The loss head on a whole pass of the 8B recipe, beside one that makes all logits."""
    tokens, vocabulary, width = (256, 3_000, 64) if rehearses else (26_624, 151_936, 4_096)
    peak = peak_flops()
    generator = torch.Generator(DEVICE).manual_seed(0)
    made = {"device": DEVICE, "dtype": torch.bfloat16, "generator": generator}
    hidden = torch.randn(tokens, width, **made).requires_grad_()
    weights = (torch.randn(vocabulary, width, **made) / width**0.5).requires_grad_()
    targets = torch.randint(vocabulary, (tokens,), device=DEVICE, generator=generator)
    temperature = torch.ones(tokens, device=DEVICE)
    found: dict[str, torch.Tensor] = {}

    def tiled() -> None:
        hidden.grad = weights.grad = None
        logprobs, _ = token_logprobs(hidden, weights, targets=targets, temperature=temperature)
        logprobs.sum().backward()
        found["tiled"] = logprobs.detach()

    def plain() -> None:
        hidden.grad = weights.grad = None
        logprobs = (hidden @ weights.T).float().log_softmax(-1).gather(1, targets[:, None])[:, 0]
        logprobs.sum().backward()
        found["plain"] = logprobs.detach()

    report: Report = {"tokens": tokens, "vocabulary": vocabulary, "peak_teraflops": round(peak / 1e12, 2)}
    tiled()
    seconds, gib = timed(tiled)
    share = 6 * tokens * vocabulary * width / seconds / peak  # forward, and the gradients of both operands
    report["tiled"] = {"seconds": round(seconds, 3), "gib": gib, "share_of_peak": round(share, 3)}
    report["one_tile_ms"] = tile_times(hidden, weights, targets)
    try:
        seconds, gib = timed(plain)
        report["plain"] = {"seconds": round(seconds, 3), "gib": gib}
        gap = float((found["plain"] - found["tiled"]).abs().max())
        # The plain head rounds its logits to bfloat16: up to 2^-8 of logits of about 5, and as much in their sum.
        assert gap < 0.1, f"the two heads differ by {gap}"
        report["largest_gap"] = round(gap, 4)
    except torch.OutOfMemoryError:
        report["plain"] = "out of memory"
    return report


def tile_times(hidden: torch.Tensor, weights: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    """Milliseconds of each piece of work on one tile of the forward pass: where the tiled head loses its time."""
    rows = max(1, min(len(hidden), TILE_ELEMENTS // len(weights)))
    tile, head = hidden[:rows].detach(), weights.detach().T
    ones = torch.ones(rows, device=DEVICE)
    logits = (tile @ head).float()
    works: dict[str, Callable[[], object]] = {
        "product, rounded": lambda: tile @ head,
        "statistics": lambda: row_statistics(logits, targets[:rows]),
        "gradient": lambda: logit_gradient(logits, targets[:rows], ones, ones),
    }
    if ON_GPU:
        works["product in float32"] = lambda: torch.mm(tile, head, out_dtype=torch.float32)
    found = {}
    for name, work in works.items():
        work()
        found[name] = round(1_000 * timed(work)[0], 2)
    return found


def attention(rehearses: bool) -> Report:
    """Attention over a pack of many samples in one kernel, beside sample by sample: equal, and how much faster."""
    if rehearses:
        return {"skipped": "these kernels are a GPU's"}
    runs, stop = [], 0
    for group in range(8):
        length = 1_100 + 40 * group
        head = stop
        for member in range(8):
            shared = 800 if member else 0
            runs.append(SampleTokens(head if member else stop, shared, stop, stop + length - shared))
            stop = runs[-1].stop
    spans = packed_spans(runs, DEVICE)
    report: Report = {"samples": len(runs), "tokens": stop}
    for dtype, most in ((torch.float32, 1e-4), (torch.bfloat16, 2e-2)):
        at_once = attention_passes(
            lambda *states: attend_at_once(*states[:2], values=states[2], spans=spans), stop, dtype
        )
        by_sample = attention_passes(
            lambda *states: torch.cat([_attend(*states[:2], values=states[2], run=run) for run in runs]), stop, dtype
        )
        gaps = [
            float((one - other).abs().max() / other.abs().max())
            for one, other in zip(at_once(), by_sample(), strict=True)
        ]
        assert max(gaps) < most, gaps
        again = at_once()
        report[str(dtype)] = {
            "largest_gap": round(max(gaps), 7),
            "repeats": all(torch.equal(one, other) for one, other in zip(again, at_once(), strict=True)),
            **{
                f"{name}_ms": round(100 * timed(lambda passes=passes: [passes() for _ in range(10)])[0], 2)
                for name, passes in (("at_once", at_once), ("by_sample", by_sample))
            },
        }
    return report


def attention_passes(
    attend: Callable[..., torch.Tensor], tokens: int, dtype: torch.dtype
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """A forward and a backward pass over random states of SmolLM2's heads; equal ones at each call."""
    torch.manual_seed(0)
    made = {"device": DEVICE, "dtype": dtype}
    states = [torch.randn(tokens, heads, 64, **made, requires_grad=True) for heads in (9, 3, 3)]
    upstream = torch.randn(tokens, 9 * 64, **made)

    def passes() -> tuple[torch.Tensor, ...]:
        mixed = attend(*states)
        return mixed.detach(), *torch.autograd.grad(mixed, states, upstream)

    return passes


def sft(rehearses: bool) -> Report:
    """Packed fine-tuning of an 8B-shaped model: as many layers as fit."""
    shape, longest = (TINY, 256) if rehearses else (EIGHT_BILLION, 8_192)
    peak = peak_flops()
    # Weights, gradients and two moments in float32; a layer keeps its input, and autocast its weights in bfloat16.
    fits = {"bytes_a_parameter": 18.0, "gib_a_layer": longest * 8_192 / 2**30, "kept_gib": 25.0}
    layers = min(layers_that_fit(shape, free_gib(), **fits), 2 if rehearses else 36)
    model = random_model(shape, layers, device=DEVICE, dtype=torch.float32)
    recompute_activations(model)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    rng = np.random.default_rng(0)
    lengths = [int(length) for length in rng.integers(longest // 8, longest // 2, size=8)]
    samples = [
        TokenSample(
            rng.integers(shape["vocab_size"], size=length).tolist(), [index > length // 2 for index in range(length)]
        )
        for length in lengths
    ]
    rows = make_rows(samples, capacity=longest, packing=True)
    plan = SftSchedule(len(samples), len(samples), 3, 0, 1e-5, 0.0)
    process = OneProcess.here("bf16")
    losses = []

    def step(number: int) -> None:
        found = sft_step(model, optimizer, rows=rows, process=process, plan=plan, step=number, clip=1.0)
        losses.append(round(found.loss, 3))

    step(1)
    seconds, gib = timed(lambda: step(2))
    assert np.isfinite(losses).all(), losses
    assert losses[1] < losses[0], losses
    return {
        "layers": layers,
        "rows": len(rows),
        "loss": losses,
        "gib": gib,
        **speed(model, sum(lengths), seconds, peak),
    }


def ssgrpo(rehearses: bool) -> Report:
    """One step of SS-GRPO on an 8B-shaped model with its reference."""
    shape, length = (TINY, 128) if rehearses else (EIGHT_BILLION, 2_048)
    peak = peak_flops()
    # Weights, gradients and moments in bfloat16, and the frozen reference; nothing is recomputed.
    fits = {"bytes_a_parameter": 10.0, "gib_a_layer": 2 * length * 2.4e5 / 2**30, "kept_gib": 15.0}
    layers = min(layers_that_fit(shape, free_gib(), **fits), 2 if rehearses else 36)
    model = random_model(shape, layers, device=DEVICE, dtype=torch.bfloat16)
    learner = Learner(model, learning_rate=1e-5, loss=LossSettings(), max_grad_norm=1.0, micro_batch_tokens=2 * length)
    rng = np.random.default_rng(0)
    prompt = rng.integers(shape["vocab_size"], size=length // 4).tolist()
    samples = []
    for number in range(8):
        ids = prompt + rng.integers(shape["vocab_size"], size=length - len(prompt)).tolist()
        stages = [-1] * len(prompt) + [4 * index // (length - len(prompt)) for index in range(length - len(prompt))]
        advantages = np.full(length, (-1.0) ** number, dtype=np.float32)
        samples.append(Sample(ids, stages, advantages, np.full(length, -12.0), temperature=1.0, policy_version=0))
    batch = pad_batch(samples, pad_id=0)
    first = learner.update(batch)
    seconds, gib = timed(lambda: learner.update(batch))
    assert first.grad_norm > 0, first
    assert np.isfinite(first.loss), first
    told = {"layers": layers, "grad_norm": round(first.grad_norm, 4), "stages": sorted(first.stages), "gib": gib}
    return {**told, **speed(model, len(samples) * length, seconds, peak)}


def speed(model: torch.nn.Module, tokens: int, seconds: float, peak: float) -> Report:
    """Tokens a second, and useful operations (6 a parameter and token, without embeddings) as a share of the peak."""
    embeddings = model.get_input_embeddings().weight.numel()
    useful = 6 * (sum(one.numel() for one in model.parameters()) - embeddings) * tokens
    rate = {
        "seconds": round(seconds, 3),
        "tokens_a_second": round(tokens / seconds),
        "peak_teraflops": round(peak / 1e12, 2),
    }
    return {**rate, "share_of_peak": round(useful / seconds / peak, 4)}


def grown_policy(folder: Path, rehearses: bool) -> Path:
    """The shipped tiny policy in the shape of Qwen3-0.6B but for the size of its heads, saved with its tokenizer."""
    small = load_model(model_folder(Path("tiny"))).to("cpu")
    sizes = (
        {"layers": 5, "hidden": 160, "heads": 5, "mlp": 400}
        if rehearses
        else {"layers": 28, "hidden": 1_024, "heads": 32, "mlp": 3_072}
    )
    large = grow(small, **sizes)
    ids = torch.arange(64)[None] * 7 % small.config.vocab_size
    with torch.no_grad():
        gap = float((small(ids).logits - large(ids).logits).abs().max())
    assert gap < 1e-2, f"the grown policy computes something else: its logits differ by {gap}"
    large.save_pretrained(folder)
    for name in ("tokenizer.json", "chat_template.jinja", "tokenizer_config.json", "generation_config.json"):
        source = model_folder(Path("tiny")) / name
        if source.is_file():
            (folder / name).write_bytes(source.read_bytes())
    return folder


def almanac(rehearses: bool) -> Report:
    """Local training in the almanac in bfloat16, with a policy that can already answer."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = grown_policy(Path(temporary) / "policy", rehearses)
        sizes = ["questions_per_step=1", "group_size=2"] if rehearses else ["questions_per_step=8", "group_size=8"]
        changes = [f"policy={folder}", f"out={temporary}/run", "record=false", *sizes]
        config = read_settings(ROOT / "configs" / "demo_almanac.yaml", LocalConfig, changes=changes)
        run = make_run(config)
        for model in (run.learner.policy, run.learner.reference):
            model.to(DEVICE, torch.bfloat16)
        policy = LocalPolicy(
            run.learner.policy, load_tokenizer(folder), rows=config.rows, max_length=config.reflection.total_tokens
        )
        run = run._replace(policy=policy)

        async def steps() -> list[dict[str, Any]]:
            return [await train_step(run, step, deque()) for step in range(1, 2 if rehearses else 4)]

        last = asyncio.run(steps())[-1]
    sampled, seconds = last["rollout_stats"]["policy_tokens"], last["seconds"]
    report: Report = {"true": last["true"], "valid": last["rollout_stats"]["valid"], "seconds": seconds}
    report["sampled_tokens_a_second"] = round(sampled / max(1e-9, seconds["sample"]), 1)
    if last["task"]:
        tokens, peak = last["task"]["tokens"], peak_flops()
        # Of the policy's own tokens alone: what is read is computed as well.
        report["update"] = speed(run.learner.policy, tokens, max(1e-3, seconds["update"]), peak)
    return report


ENGINE = (
    *("trainer.device=cuda", "actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.dtype=bfloat16"),
    *("actor_rollout_ref.rollout.gpu_memory_utilization=0.4", "actor_rollout_ref.rollout.free_cache_engine=true"),
    *("actor_rollout_ref.rollout.checkpoint_engine.backend=naive", "ray_kwargs.ray_init.num_gpus=1"),
    *("actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16",),
    *("actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype=bf16",),
    *("actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=null",),
    *("~ray_kwargs.ray_init.runtime_env.env_vars.VERL_PLATFORM",),
    *("~ray_kwargs.ray_init.runtime_env.env_vars.VERL_ENGINE_DEVICE",),
    *("trainer.save_freq=1", "rubricem.window=1"),
)
LAUNCH = """
import sys
from pathlib import Path
import yaml
from trainers.verl_backend import launch
# The config's own variables are for a CPU.
launch.set_environment = lambda file: None
launch.launch(Path(sys.argv[1]), sys.argv[2:])
"""


def verl(rehearses: bool) -> Report:
    """Two steps of veRL in fsdp2 with vLLM, saved; a third one by a run that resumes from them."""
    config = ROOT / "configs" / "verl_almanac_cpu.yaml"
    missing = [name for name in ("ray", "verl", "vllm") if find_spec(name) is None]
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        changes = [*ENGINE, f"actor_rollout_ref.model.path={temporary}/policy", f"trainer.default_local_dir={run}"]
        shape = read_run_shape(read_run_file(config, changes))
        report: Report = {"engine": shape.engine, "device": shape.device}
        if rehearses and "verl" not in missing:
            from trainers.verl_backend.launch import read_config

            report["composed"] = str(read_config(config, changes).trainer.v1.trainer_mode)
        if rehearses or missing:
            return {**report, "skipped": f"not installed: {', '.join(missing)}" if missing else "a rehearsal"}
        grown_policy(Path(temporary) / "policy", rehearses)
        for steps in (2, 3):
            command = [sys.executable, "-c", LAUNCH, str(config), *changes, f"trainer.total_training_steps={steps}"]
            began = time.monotonic()
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=ROOT,
                start_new_session=True,
                env={**os.environ, "VERL_USE_EXTERNAL_MODULES": "rubricem_trainers.verl_backend.plugin"},
            )
            told, _ = process.communicate()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            assert process.returncode == 0, told[-1_200:]
            report[f"seconds to step {steps}"] = round(time.monotonic() - began, 1)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3], lines
    for name in ("rollout_kl", "grad_norm"):
        report[name] = [line["task"] and line["task"][name] for line in lines]
    report["last_step"] = lines[-1]["seconds"]
    return report


PARTS: dict[str, Callable[[bool], Report]] = {
    "head": head,
    "attention": attention,
    "sft": sft,
    "ssgrpo": ssgrpo,
    "almanac": almanac,
    "verl": verl,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--rehearse", action="store_true")
    chosen = parser.parse_args()
    if not (ON_GPU or chosen.rehearse):
        sys.exit("there is no GPU that torch can use; --rehearse runs every part on the CPU at a tiny size")
    device = torch.cuda.get_device_name() if ON_GPU else "cpu"
    report = {"device_name": device, "torch": torch.__version__, **PARTS[chosen.part](chosen.rehearse)}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
