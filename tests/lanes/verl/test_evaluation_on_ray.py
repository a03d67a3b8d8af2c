"""`rubricem eval --ray N` on a real Ray equals the run of one process, and no code of the current folder runs."""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ray import cloudpickle

from rubricem_agent.wiring.on_ray import limits_of, run_on_ray
from rubricem_env.llm.limits.limiter import Rates
from rubricem_records.evaluations.scores import Scores
from tests.lanes.verl.runs import ROOT

PARTS = ("1-of-2", "2-of-2")
COMMAND = (
    "import sys; sys.path.pop(0); sys.path.append(sys.argv.pop(1)); from rubricem_agent.cli.main import main; main()"
)


def evaluate(folder: Path, *options: str) -> Path:
    """The run of a command that starts in the folder and names its paths from there."""
    out = f"run{len(options)}"
    words = ("eval", "almanac", "--policy", "expert", "--limit", "6", "--out", out, *options)
    subprocess.run([sys.executable, "-c", COMMAND, str(ROOT), *words], cwd=folder, check=True, timeout=300)
    return folder / out


def test_parts_on_ray_give_the_numbers_of_one_process_and_planted_modules_are_not_run(tmp_path: Path) -> None:
    for name in ("numpy", "pydantic", "typer", "json", "yaml"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'stolen')!r}, 'a').write('{name}')\n")

    alone, split = evaluate(tmp_path), evaluate(tmp_path, "--ray", "2")

    one, two = (Scores.model_validate_json((run / "scores.json").read_bytes()) for run in (alone, split))
    assert one.judges == two.judges
    assert [len((split / "shards" / part / "answers.jsonl").read_text().splitlines()) for part in PARTS] == [3, 3]
    assert json.loads((split / "run.json").read_text())["inputs"]["subset"] == "first 6"
    assert not (tmp_path / "stolen").exists()


def test_a_failure_in_a_worker_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "shards").write_text("no folder, so that no part can write")
    words = ("eval", "almanac", "--policy", "expert", "--limit", "2", "--ray", "2", "--out", "run")
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, str(ROOT), *words], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    said = " ".join((done.stderr + done.stdout).split())
    assert (done.returncode, "Traceback" in said) == (2, False)
    assert "cannot write to" in said


CALLS, SECONDS = 6, 0.1


def occupy(service: Any) -> list[tuple[float, float]]:
    """When each of a worker's calls began and ended."""
    limiter = limits_of(service)("snippet_search", Rates(concurrency=2))

    async def call() -> tuple[float, float]:
        async with limiter.slot(1):
            began = time.time()
            await asyncio.sleep(SECONDS)
            return began, time.time()

    async def together() -> list[tuple[float, float]]:
        return await asyncio.gather(*(call() for _ in range(CALLS)))

    return asyncio.run(together())


def test_workers_share_the_slots_of_an_engine() -> None:
    # By value: a worker finds veRL's own package `tests`, and not this module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    calls = [call for part in run_on_ray(occupy, [(), (), ()], what="a test") for call in part]
    under_way = [sum(began <= moment < ended for began, ended in calls) for moment, _ in calls]
    assert len(calls) == 3 * CALLS
    assert max(under_way) == 2
