"""Evaluate in the almanac with verifiers' own command line, offline: python -m docs.adapters.verifiers_eval.

The plugin is rubricem_almanac.py beside this file; the model stands behind a server on this machine.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from docs.adapters.writer_server import writer_server
from docs.adapters.writers import find_writers
from rubricem_env.domain import MissingExtraError
from rubricem_env.testing import serve_loopback

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLUGIN = "rubricem-almanac"


def evaluate(
    url: str, out: Path, *, group_size: int = 4, task: int = 1, plugin: str = PLUGIN, path: Path = HERE
) -> list[dict[str, Any]]:
    """The traces of one group, as vf-eval wrote them; the plugin is a module in the folder `path`."""
    program = Path(sys.executable).with_name("vf-eval")
    if not program.exists():
        raise MissingExtraError("verifiers", "verifiers", "this example")
    command = [
        *(str(program), plugin),
        *("--env.agent.harness.id", plugin),
        *("--env.agent.runtime.type", "subprocess"),
        *("--client.base-url", f"{url}/v1"),
        *("--client.api-key-var", "ALMANAC_KEY"),
        *("-m", "writer"),
        *("-r", str(group_size)),
        *("--select.include.idx", json.dumps([str(task)])),
        *("--output-dir", str(out)),
        *("--no-push", "--no-rich"),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{path}{os.pathsep}{ROOT}",
        "RUBRICEM_GROUP_SIZE": str(group_size),
        "ALMANAC_KEY": "none",
    }
    completed = subprocess.run(
        command, env=environment, timeout=200, cwd=out, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if completed.returncode:
        raise SystemExit(f"vf-eval ended with {completed.returncode}: {completed.stderr[-2000:]}")
    lines = next(out.rglob("traces.jsonl")).read_text(encoding="utf-8").splitlines()
    return [trace for line in lines for trace in json.loads(line)["traces"]]


def main() -> None:
    """One group of four; says the stage rewards of each."""
    writers = find_writers()
    sys.stdout.write(f"written by {writers.name}\n")
    with serve_loopback(writer_server(writers)) as url, tempfile.TemporaryDirectory() as folder:
        for trace in evaluate(url, Path(folder)):
            rewards = {name: round(reward["score"], 3) for name, reward in trace["rewards"].items()}
            sys.stdout.write(f"{rewards} by turn {trace['info']['turn_rewards']}\n")
    writers.close()


if __name__ == "__main__":
    main()
