"""SmolLM2 learns the recipe on one GPU: `python tests/lanes/gpu/real_model.py --model FOLDER --out FOLDER`.

FOLDER is what `rubricem model smollm2` wrote. The model is fine-tuned on the almanac's expert and tested for reading;
then SS-GRPO and answer-only GRPO train from it, three seeds each, all at once on the card. It stops after `--minutes`;
the same command goes on. `--rehearse` makes one tiny step of each with the shipped policy on the CPU.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
ARMS = {
    f"{name}{seed}": [f"seed={seed}", f"credit={credit}"]
    for seed in range(3)
    for name, credit in (("ss", "stages"), ("ao", "answer_only"))
}
REHEARSED = ("ss0", "ao0")
SMALL = {
    "traces": ["num_worlds=1"],
    "tune": ["stop_after=2", "batch_size=2", "precision=fp32"],
    "train": ["steps=1", "questions_per_step=1", "group_size=2", "window=1", "rows=8", "evaluate_every=1"],
}
"""Changes of each command in a rehearsal."""


def start(name: str, module: str, *arguments: str, out: Path) -> subprocess.Popen[str]:
    """A command of the tree, whose output goes to a log of its name."""
    found = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    # Seven processes share the card, and their caches come and go.
    variables = {**os.environ, "PYTHONPATH": found, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    with (out / f"{name}.log").open("w") as log:
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=variables, stdout=log, stderr=subprocess.STDOUT, text=True)


def finish(processes: Sequence[subprocess.Popen[str]], *, until: float) -> int:
    """Wait for all, and interrupt what runs at `until`; how many failed."""
    for process in processes:
        try:
            process.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
    return sum(process.wait() not in (0, 130) for process in processes)


def main() -> int:
    """Fine-tune, test, train; 0 where nothing failed."""
    parser = argparse.ArgumentParser(prog="python tests/lanes/gpu/real_model.py")
    parser.add_argument("--model", required=True, help="the folder of the base model; tiny in a rehearsal")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, at a tiny size")
    chosen = parser.parse_args()
    until, out = time.monotonic() + chosen.minutes * 60, chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    small = SMALL if chosen.rehearse else {key: [] for key in SMALL}
    samples, tuned = out / "traces" / "samples.jsonl", out / "tuned" / "model"
    if not samples.exists():
        traces = start(
            "traces",
            "research.almanac_traces",
            "--config",
            "smollm2_traces",
            f"out={samples.parent}",
            *small["traces"],
            out=out,
        )
        if finish([traces], until=until):
            return report(out, ["traces"])
    if not (tuned / "system_prompt.txt").exists():
        settings = ["--config", "sft_smollm2", f"model={chosen.model}", f"samples={samples}", f"out={tuned.parent}"]
        if finish([start("tuned", "trainers.fine_tuning.sft", *settings, *small["tune"], out=out)], until=until):
            return report(out, ["tuned"])
    arms = REHEARSED if chosen.rehearse else tuple(ARMS)
    read = [
        "--split",
        "validation",
        "--json",
        str(out / "reading.json"),
        *(["--questions", "1"] if chosen.rehearse else []),
    ]
    processes = [start("reading", "research.reading_test", str(tuned), *read, out=out)]
    for arm in arms:
        settings = ["--config", "smollm2_almanac", f"policy={tuned}", f"out={out / arm}", "record=false", *ARMS[arm]]
        processes.append(start(arm, "trainers.local.command", *settings, *small["train"], out=out))
    failed = finish(processes, until=until)
    return report(out, ["tuned", "reading", *arms], failed=failed)


def report(out: Path, names: Sequence[str], *, failed: int = 1) -> int:
    """Print the end of each log."""
    for name in names:
        last = (out / f"{name}.log").read_text(errors="replace").strip().splitlines()[-3:]
        sys.stdout.write("\n".join([f"== {name}", *last]) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
