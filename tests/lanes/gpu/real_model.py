"""SmolLM2 learns the recipe on one GPU: `python tests/lanes/gpu/real_model.py --model FOLDER --out FOLDER`.

FOLDER is what `rubricem model smollm2` wrote. The model is fine-tuned on the almanac's expert, whole and by LoRA, and
tested for reading. SS-GRPO and answer-only GRPO then train from it, three seeds each, and the meta-policy in two ways.
With `--documents FOLDER`, which holds `questions.jsonl` and `index`, it answers those before and after. What does not
wait for another runs beside it on the card. It stops after `--minutes`; the same command goes on. `--rehearse` does
little of each with the shipped policy on the CPU.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
ARMS = {
    **{f"ss{seed}": (f"seed={seed}",) for seed in range(3)},
    **{f"ao{seed}": (f"seed={seed}", "credit=answer_only") for seed in range(3)},
}
WITH_LESSONS = {
    "distilled0": ("meta_policy=true", "references={share: 0.5, distill_context: true}"),
    "meta0": ("meta_policy=true",),
}
PATIENCE = 15.0
"""Seconds until a process that was interrupted is killed."""
REHEARSED_ARMS = ("ss0", "ao0", "meta0")
SIZES = {
    "traces": (),
    # One row holds a batch: passes of a small model are bound by their launches.
    "tune": ("packing=true", "max_tokens=8192", "precision=bf16", "checkpoint_every=1000"),
    "train": (
        "steps=12",
        "evaluate_every=4",
        "record={every: 6, attempts: 2}",
    ),
    "read": (),
    "documents": ("--limit", "100", "--concurrency", "24"),
}
REHEARSED = {
    "traces": ("num_worlds=1",),
    "tune": ("stop_after=2", "batch_size=2", "precision=fp32"),
    "train": (
        "steps=1",
        "questions_per_step=1",
        "group_size=2",
        "window=1",
        "rows=8",
        "evaluate_every=1",
        "record=false",
    ),
    "read": ("--questions", "1"),
    "documents": ("--limit", "1", "--concurrency", "1"),
}
"""Changes of each command, on a GPU and in a rehearsal."""


class Job(NamedTuple):
    """A command of the tree."""

    name: str
    module: str
    arguments: tuple[str, ...]
    after: str = ""
    """The job that makes what it reads."""
    ends_with: tuple[int, ...] = (0,)
    """Its exit codes where it has done its work."""


def list_jobs(chosen: argparse.Namespace, out: Path) -> Iterator[Job]:
    """In the order in which they start."""
    sizes = REHEARSED if chosen.rehearse else SIZES
    samples, tuned = out / "traces" / "samples.jsonl", out / "tuned" / "model"
    traces = ("--config", "smollm2_traces", f"out={samples.parent}", *sizes["traces"])
    yield Job("traces", "research.almanac_traces", traces)
    for name, more in (("tuned", ()), ("lora", ("lora={rank: 32}", "learning_rate=1.0e-3"))):
        tune = ("--config", "sft_smollm2", f"model={chosen.model}", f"samples={samples}", f"out={out / name}", *more)
        yield Job(name, "trainers.fine_tuning.sft", (*tune, *sizes["tune"]), "traces")

    def trained(arms: Mapping[str, tuple[str, ...]]) -> Iterator[Job]:
        for name, changes in arms.items():
            if not chosen.rehearse or name in REHEARSED_ARMS:
                train = ("--config", "smollm2_almanac", f"policy={tuned}", f"out={out / name}", "probe=false")
                yield Job(name, "trainers.local.command", (*train, *sizes["train"], *changes), "tuned")

    yield from trained(ARMS)
    for name in ("tuned", "lora"):
        read = ("--split", "validation", "--json", str(out / f"reading_{name}.json"), *sizes["read"])
        yield Job(f"reading_{name}", "research.reading_test", (str(out / name / "model"), *read), name)
    for name, model, after in (("base", chosen.model, ""), ("tuned", tuned, "tuned")) if chosen.documents else ():
        questions, index = chosen.documents / "questions.jsonl", chosen.documents / "index"
        ask = ("eval", "own", "--data", str(questions), "--tools", str(index), "--policy", f"local:{model}")
        settings = ("--max-turn-tokens", "300", "--out", str(out / f"documents_{name}"), *sizes["documents"])
        # 3: a policy that answers nothing.
        yield Job(f"documents_{name}", "rubricem_agent.cli.main", (*ask, *settings), after, (0, 3))
    yield from trained(WITH_LESSONS)


def start(job: Job, out: Path) -> subprocess.Popen[str]:
    """Its output goes to a log of its name."""
    found = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    own = {
        "PYTHONPATH": found,
        # They share the card and the processor, and their caches come and go.
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "OMP_NUM_THREADS": "1",
        # Products of float32 by the card's matrix units.
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
    }
    with (out / f"{job.name}.log").open("a") as log:
        command = [sys.executable, "-m", job.module, *job.arguments]
        return subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **own}, stdout=log, stderr=subprocess.STDOUT, text=True
        )


def run_all(jobs: Sequence[Job], out: Path, *, at_once: int, until: float) -> dict[str, str]:
    """How each has ended; a job that was done before is not run again."""
    ended = {job.name: "done" for job in jobs if (out / f"{job.name}.done").exists()}
    by_name = {job.name: job for job in jobs}
    running: dict[str, tuple[subprocess.Popen[str], float]] = {}
    while len(ended) < len(jobs):
        for job in jobs:
            is_free = len(running) < at_once and job.name not in (*running, *ended)
            if is_free and time.monotonic() < until and (not job.after or ended.get(job.after, "").startswith("done")):
                running[job.name] = start(job, out), time.monotonic()
        if not running:
            break
        time.sleep(0.2)
        if time.monotonic() >= until:
            interrupt([process for process, _ in running.values()])
        for name, (process, began) in list(running.items()):
            if process.poll() is not None:
                del running[name]
                seconds = f"{time.monotonic() - began:.0f} s"
                is_done = process.returncode in by_name[name].ends_with
                ended[name] = f"done in {seconds}" if is_done else f"code {process.returncode}, {seconds}"
                if is_done:
                    (out / f"{name}.done").touch()
    return {job.name: ended.get(job.name, "not begun") for job in jobs}


def interrupt(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End them all, those that do not end themselves too."""
    for process in processes:
        process.send_signal(signal.SIGINT)
    ends = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(0.1, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> int:
    """Fine-tune, test, train; 0 where nothing failed."""
    parser = argparse.ArgumentParser(prog="python tests/lanes/gpu/real_model.py")
    parser.add_argument("--model", required=True, help="the folder of the base model; tiny in a rehearsal")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--documents", type=Path, help="a folder of questions.jsonl and index, of research/")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument(
        "--at-once", type=int, default=10, help="how many processes share the card; one takes some 13 GiB"
    )
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, at a tiny size")
    chosen = parser.parse_args()
    until, out = time.monotonic() + chosen.minutes * 60, chosen.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    jobs = list(list_jobs(chosen, out))
    ended = run_all(jobs, out, at_once=2 if chosen.rehearse else chosen.at_once, until=until)
    for name, how in ended.items():
        log = out / f"{name}.log"
        last = log.read_text(errors="replace").strip().splitlines()[-2:] if log.exists() else []
        sys.stdout.write("\n".join([f"== {name}: {how}", *last]) + "\n")
    # What was interrupted at the end of the time goes on with the same command.
    failed = [how for how in ended.values() if how.startswith("code ") and not how.startswith(("code 130", "code -2"))]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
