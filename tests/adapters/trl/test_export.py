"""The recipe that `rubricem data export --to trl` writes, run by TRL on its rows: the loss is that of the labels."""

import os
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed; run make adapter-trl")

import torch
from transformers import AutoTokenizer

from rubricem_agent.data.chatml import ChatSample, ChatTurn, export_rows
from rubricem_agent.policy.base import TINY, model_folder
from rubricem_env.testing.tiny_model import tiny_qwen3

pytestmark = pytest.mark.filterwarnings("default")
TRACE = "<think>Look it up.</think><tool_output>The width of Calm Bridge is 120 m.</tool_output><answer>120 m</answer>"
SHOWN = TRACE.index("<tool_output>"), TRACE.index("<answer>")


def test_trl_trains_on_the_exported_rows_with_our_labels(tmp_path, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(str(model_folder(Path(TINY))))
    sample = ChatSample(
        id="q1",
        messages=(
            ChatTurn(role="system", content="Search, then answer."),
            ChatTurn(role="user", content="How wide is Calm Bridge?"),
            ChatTurn(role="assistant", content=TRACE),
        ),
        spans=((0, SHOWN[0]), (SHOWN[1], len(TRACE))),
    )
    assert export_rows([sample], tokenizer, folder=tmp_path, trainer="trl", max_tokens=1_000) == (1, 0)
    model = tiny_qwen3(len(tokenizer))
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")

    recipe = (tmp_path / "trl_sft.py").read_text()
    for theirs, here in {
        '"Qwen/Qwen3-8B"': '"model"',
        "bf16=True": "bf16=False, use_cpu=True, logging_steps=1, save_strategy='no'",
        "num_train_epochs=5": "max_steps=1",
        "gradient_accumulation_steps=16": "gradient_accumulation_steps=1",
        "SFTTrainer(": "trainer = SFTTrainer(",
        ").train()": ")\ntrainer.train()",
    }.items():
        assert recipe.count(theirs) == 1, theirs
        recipe = recipe.replace(theirs, here)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    names = {}
    exec(recipe, names)

    (row,) = names["rows"]
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss.item()
    assert -100 in row["labels"]
    assert names["trainer"].state.log_history[0]["loss"] == pytest.approx(expected, rel=1e-4)
