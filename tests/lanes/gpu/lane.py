"""What one GPU can show without the network, in at most nine minutes; `make gpu-lane`.

    python tests/lanes/gpu/lane.py [--rehearse] [head attention sft ssgrpo almanac verl]

Each part runs in a process of its own with a time limit, and reports by itself: one that fails or hangs costs no other.
`--rehearse` runs every part on the CPU at a tiny size.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIMITS = {"head": 60, "attention": 30, "sft": 80, "ssgrpo": 80, "almanac": 80, "verl": 230}
"""Seconds of each part on a GPU: 560 in all."""
REHEARSAL = 120
"""Of each part on a busy CPU; together they take about a minute on a quiet one."""


def run_part(name: str, *, rehearses: bool) -> dict[str, object]:
    """The report of a part; `failed` says why there is none."""
    limit, began = REHEARSAL if rehearses else LIMITS[name], time.monotonic()
    # By its path: veRL's wheel brings a package `tests` of its own.
    command = [sys.executable, str(Path(__file__).with_name("parts.py")), name, *(["--rehearse"] if rehearses else [])]
    found = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    variables = {**os.environ, "PYTHONPATH": found, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if rehearses:
        variables["CUDA_VISIBLE_DEVICES"] = ""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=variables,
        start_new_session=True,
    ) as process:
        try:
            told, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return {"failed": f"it has not ended in {limit} s"}
    report: dict[str, object] = {"took": round(time.monotonic() - began, 1)}
    if process.returncode:
        return {**report, "failed": (errors.strip() or told.strip() or f"exit code {process.returncode}")[-1_500:]}
    return {**report, **json.loads(told.strip().splitlines()[-1])}


def main() -> int:
    """Run the parts that are named, or all; 1 where one has failed."""
    parser = argparse.ArgumentParser(prog="python tests/lanes/gpu/lane.py", description="Try this tree on one GPU.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(LIMITS)}; default: all")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, at a tiny size")
    chosen = parser.parse_args()
    unknown = set(chosen.parts) - set(LIMITS)
    if unknown:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; the parts are {', '.join(LIMITS)}")
    failed = []
    for name in chosen.parts or LIMITS:
        report = run_part(name, rehearses=chosen.rehearse)
        sys.stdout.write(f"{name}: {'FAILED ' if 'failed' in report else ''}{json.dumps(report)}\n")
        sys.stdout.flush()
        failed += [name] if "failed" in report else []
    if failed:
        sys.stdout.write(f"failed: {', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
