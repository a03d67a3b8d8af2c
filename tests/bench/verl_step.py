"""Measure a step of our trainer on veRL beside one of veRL's own: make bench-verl, where .venv-verl stands.

    python -m tests.bench.verl_step [--rounds 2] [--steps 9] [--json FILE] [KEY=VALUE ...]

veRL's `colocate_async` with GRPO, and `rubricem_async` with and without the meta-policy, in turn, each in processes of
its own. All play the almanac's episodes with the policy `tiny` over the transformers engine, at a learning rate at
which it stays as it is; the judge answers at once. The first step is not counted, and the others are whole turns of the
curriculum. `start` is from the command to the first step. Ours leaves out rollouts that teach nothing, veRL's does not.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.lanes.verl.runs import ROOT, kill

PYTHON = ROOT / ".venv-verl" / "bin" / "python"
LAUNCH = Path(__file__).with_name("verl_launch.py")
"""By path: a package that comes with veRL is called `tests` as well."""
ARMS = {
    "veRL's GRPO": ("bench_verl", "rubricem.meta_policy=false"),
    "ours without the meta-policy": ("bench_rubricem", "rubricem.meta_policy=false"),
    "ours": ("bench_rubricem", "rubricem.meta_policy=true"),
}
BASE = "veRL's GRPO"
LIMIT = 1_200.0
"""Seconds of one run."""
TRAINING = ("reflect", "old_log_prob", "ref", "update_actor")
"""Where the tokens go through the model that is trained; Phase A, which is all of this, is called reflect."""
PARTS = ("gen", "reflect", "old_log_prob", "ref", "adv", "update_actor", "update_weights")


def play(folder: Path, arm: str, *, steps: int, changes: Sequence[str]) -> dict[str, Any]:
    """One run of an arm: seconds to its first step, and each step as veRL's own tracker has it."""
    folder.mkdir(parents=True)
    ray_folder = Path(tempfile.mkdtemp(prefix="rb", dir="/tmp"))
    tracked = folder / "tracked.jsonl"
    mode, meta_policy = ARMS[arm]
    asked = [
        *(f"trainer.v1.trainer_mode={mode}", meta_policy, f"trainer.total_training_steps={steps}"),
        *("trainer.logger=[file]", "trainer.save_freq=-1", "rubricem.window=2", f"trainer.default_local_dir={folder}"),
        *("actor_rollout_ref.actor.optim.lr=1.0e-9", f"++ray_kwargs.ray_init._temp_dir={ray_folder}", *changes),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{LAUNCH.parent}", "VERL_FILE_LOGGER_PATH": str(tracked)}
    started = time.monotonic()
    with (folder / "run.log").open("wb") as log:
        process = subprocess.Popen(
            [str(PYTHON), str(LAUNCH), *asked],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        try:
            first = _wait(process, tracked, started)
        finally:
            kill(process, ray_folder)
            shutil.rmtree(ray_folder, ignore_errors=True)
    told = tracked.read_text() if tracked.is_file() else ""
    lines = [json.loads(line)["data"] for line in told.splitlines()]
    if len(lines) < steps:
        raise RuntimeError(f"{arm} took {len(lines)} of {steps} steps; see {folder / 'run.log'}")
    return {"start": first - lines[0]["timing_s/step"], "steps": lines[1:]}


def _wait(process: "subprocess.Popen[bytes]", tracked: Path, started: float) -> float:
    """Until the run is over; the seconds after which its first step was."""
    first = 0.0
    while process.poll() is None and time.monotonic() - started < LIMIT:
        if not first and tracked.is_file() and tracked.stat().st_size:
            first = time.monotonic() - started
        time.sleep(0.05)
    return first


def figures_of(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the steps of all runs of an arm."""
    steps = [step for run in runs for step in run["steps"]]
    mean = {name: statistics.fmean(step.get(name, 0.0) for step in steps) for name in {key for s in steps for key in s}}
    whole = mean["timing_s/step"]
    tokens = mean["perf/total_num_tokens"] + mean.get("reflected_tokens", 0.0)
    own = sum(mean.get(f"own/{name}", 0.0) for name in ("report", "log", "collect")) + mean["timing_s/adv"]
    return {
        "start": [round(run["start"], 1) for run in runs],
        "step": round(whole, 3),
        "step of each run": [round(_step(run), 3) for run in runs],
        "parts": {part: round(_part_of(mean)(part), 3) for part in PARTS},
        "between veRL's calls": {
            name[4:]: round(value, 4) for name, value in sorted(mean.items()) if name[:4] == "own/"
        },
        "between veRL's calls, with the advantages, of a step": round(own / whole, 4),
        "step without Phase A": round(whole - mean.get("timing_s/reflect", 0.0), 3),
        "tokens of rollouts trained on": round(mean["perf/total_num_tokens"]),
        "tokens of reflections trained on": round(mean.get("reflected_tokens", 0.0)),
        "seconds of training for 1,000 tokens": round(1_000 * sum(map(_part_of(mean), TRAINING)) / tokens, 3),
        "seconds of a step for 1,000 tokens": round(1_000 * whole / tokens, 3),
    }


def _part_of(mean: Mapping[str, float]) -> Callable[[str], float]:
    return lambda part: mean.get(f"timing_s/{part}", 0.0)


def _step(run: dict[str, Any]) -> float:
    return statistics.fmean(step["timing_s/step"] for step in run["steps"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="of all three, one after the other")
    parser.add_argument("--steps", type=int, default=9, help="of each run; whole turns of four and the first")
    parser.add_argument("--out", type=Path, help="keep the runs' folders here")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="changes of configs/verl_almanac_cpu.yaml")
    chosen = parser.parse_args()
    out = chosen.out or Path(tempfile.mkdtemp(prefix="verl-step-"))
    runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
    for number in range(chosen.rounds):
        for place, (arm, done) in enumerate(runs.items()):
            done.append(play(out / f"{number}-{place}", arm, steps=chosen.steps, changes=chosen.changes))
    ratios = {
        arm: [round(_step(run) / _step(plain), 3) for run, plain in zip(done, runs[BASE], strict=True)]
        for arm, done in runs.items()
        if arm != BASE
    }
    figures = {arm: figures_of(done) for arm, done in runs.items()}
    for_tokens = {
        name: {arm: round(figures[arm][name] / figures[BASE][name], 3) for arm in ratios}
        for name in (
            "step without Phase A",
            "seconds of training for 1,000 tokens",
            "seconds of a step for 1,000 tokens",
        )
    }
    report = json.dumps({**figures, "to veRL's GRPO": {"step of each round": ratios, **for_tokens}}, indent=1)
    print(report)  # noqa: T201
    if chosen.json:
        chosen.json.write_text(report + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
