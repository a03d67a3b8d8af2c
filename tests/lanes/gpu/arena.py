"""The credit methods side by side at 42 million parameters, on one GPU: `python tests/lanes/gpu/arena.py --out FOLDER`.

The shipped policy is grown to four times its width and three times its depth: it answers as before, and all new weights
can learn. Then `python -m research.ablate --methods credit` trains every method, all at once on the card. It stops
after `--minutes`; the same command goes on. `--rehearse` makes one step of two methods on the CPU at a tiny size.

Weights, gradients and moments are in float32, or with `--bf16` in bfloat16, where an update that is small beside its
weight is rounded away. Nobody has tried either on a GPU.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch
from gpu_models import grow
from transformers import Qwen3ForCausalLM

from rubricem_agent.policy.base import model_folder
from rubricem_agent.policy.local import load_model

ROOT = Path(__file__).parents[3]
READERS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "gate_proj.weight", "up_proj.weight")

WRITERS = ("o_proj.weight", "down_proj.weight")


@torch.no_grad()
def awaken(model: Qwen3ForCausalLM) -> None:
    """Draw the new weights that read, leave those that write at zero: answers stay, and all weights get a gradient."""
    torch.manual_seed(0)
    for name, weight in model.named_parameters():
        if name.endswith(READERS):
            weight.copy_(torch.where(weight == 0, torch.randn_like(weight) * 0.02, weight))
        elif name.endswith("norm.weight"):
            weight.masked_fill_(weight == 0, 1.0)


def grown_policy(folder: Path, *, rehearses: bool, dtype: torch.dtype) -> None:
    """Write the grown policy with the tiny one's tokenizer. A run computes in the precision of its policy's file.

    Raises:
        RuntimeError: it computes something else.
    """
    tiny = model_folder(Path("tiny"))
    small = load_model(tiny).to("cpu").float()
    sizes = {"layers": 5, "hidden": 160, "heads": 5, "mlp": 400}
    large = grow(small, **(sizes if rehearses else {"layers": 12, "hidden": 512, "heads": 16, "mlp": 1_536}))
    awaken(large)
    ids = torch.arange(64)[None] * 7 % small.config.vocab_size
    with torch.no_grad():
        gap = float((small(ids).logits - large(ids).logits).abs().max())
    if gap > 1e-2:
        raise RuntimeError(f"the grown policy's logits differ by {gap}")
    large(ids).logits.float().logsumexp(-1).sum().backward()
    # What writes learns first; what reads in an added layer has a gradient as soon as that layer writes.
    idle = [name for name, weight in large.named_parameters() if not name.endswith(READERS) and weight.grad is None]
    idle += [name for name, weight in large.named_parameters() if name.endswith(WRITERS) and not weight.grad.any()]
    if idle:
        raise RuntimeError(f"the grown policy cannot learn in {', '.join(idle)}")
    sys.stderr.write(f"{sum(one.numel() for one in large.parameters()):,} parameters\n")
    large.to(dtype).save_pretrained(folder)
    for source in tiny.iterdir():
        if source.name not in ("model.safetensors", "config.json"):
            (folder / source.name).write_bytes(source.read_bytes())


def main() -> int:
    """Train for so many minutes; 0 where all methods have ended, 124 where time was up."""
    parser = argparse.ArgumentParser(prog="python tests/lanes/gpu/arena.py")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, at a tiny size")
    parser.add_argument("--bf16", action="store_true", help="in an --out of its own")
    chosen = parser.parse_args()
    policy = chosen.out / "policy"
    if not (policy / "tokenizer.json").exists():
        grown_policy(policy, rehearses=chosen.rehearse, dtype=torch.bfloat16 if chosen.bf16 else torch.float32)
    changes, methods, jobs = ["micro_batch_tokens=65536", "learning_rate=1e-4"], "credit", 7
    if chosen.rehearse:
        changes, methods, jobs = ["questions_per_step=1", "group_size=2", "window=1", "steps=1"], "ss_grpo", 1
    config = ROOT / "configs" / "ablation_almanac.yaml"
    given = [str(config), f"policy={policy.resolve()}", f"out={chosen.out / 'runs'}", *changes]
    command = [sys.executable, "-m", "research.ablate", *given]
    command += ["--methods", methods, "--seeds", "1", "--jobs", str(jobs)]
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        try:
            return process.wait(chosen.minutes * 60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
            return 124


if __name__ == "__main__":
    sys.exit(main())
