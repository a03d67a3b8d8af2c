"""One training step parses each trajectory once, and stays within few files of the product."""

import asyncio
import sys
import threading
from collections import Counter, deque
from pathlib import Path

import pytest

from trainers.local.run import make_run
from trainers.local.settings import LocalConfig
from trainers.local.ssgrpo import train_step

ROOT = Path(__file__).parents[3]
PRODUCT = tuple(
    str(ROOT / name) for name in ("rubricem_env", "rubricem_agent", "rubricem_records", "rubricem_viewer", "trainers")
)


def traced_step(config: LocalConfig) -> tuple[Counter[str], set[str]]:
    """Calls by function name, and the files whose functions were called, in one step of one question, two attempts."""
    made = make_run(config)
    calls: Counter[str] = Counter()
    files: set[str] = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            calls[frame.f_code.co_name] += 1
            files.add(frame.f_code.co_filename.removeprefix(f"{ROOT}/"))

    async def run() -> None:
        made.recorder.begin(0, embedder=made.bank.embedder_name)
        threading.setprofile(note)  # the thread that decodes starts within the step
        sys.setprofile(note)
        try:
            await train_step(made, 1, deque())
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        await made.policy.aclose()

    asyncio.run(run())
    return calls, files


@pytest.fixture(scope="module")
def step(policy_folder, tmp_path_factory) -> tuple[Counter[str], set[str]]:
    return traced_step(small_config(policy_folder, tmp_path_factory.mktemp("run")))


def small_config(policy: Path, out: Path) -> LocalConfig:
    fields = {
        "policy": policy,
        "out": out,
        "questions_per_step": 1,
        "group_size": 2,
        "window": 1,
        "max_turn_tokens": 12,
        "limits": {"max_calls": 1, "max_turns": 2, "max_tokens": 60},
        "reflection": {"num_candidates": 2, "total_tokens": 4_000, "new_tokens": 12},
    }
    return LocalConfig.model_validate(fields, strict=False)


def test_a_step_reads_each_trajectory_once(step):
    calls, _ = step
    assert calls["run_episode"] > 0
    assert calls["parse_trajectory"] == 2
    assert calls["parse_turns"] == 0


def test_a_step_computes_the_true_quality_of_each_rollout_once(step):
    calls, _ = step
    assert calls["true_quality"] == 2


def test_an_audited_step_reads_no_trajectory_again(policy_folder, tmp_path):
    config = small_config(policy_folder, tmp_path / "run")
    calls, _ = traced_step(
        config.model_copy(update={"held_out_judge": config.held_out_judge.model_copy(update={"every": 1})})
    )
    assert calls["examine"] > 0
    assert calls["parse_trajectory"] == 2
