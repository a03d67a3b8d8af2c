"""Practice on many short samples: padded batches in one process, which is several times as fast as rows one by one.

It takes minutes, so nothing is kept on the way: interrupted, it begins again.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from rubricem_agent.data.chatml import ChatSample
from rubricem_agent.data.tokens import TokenSample, encode_sample
from trainers.sft_parts.place import OneProcess
from trainers.sft_parts.plan import Plan

IGNORED = -100
SAY_EVERY = 100


def practise(
    base: Path, samples: Sequence[ChatSample], *, out: Path, batch_size: int, learning_rate: float, seed: int
) -> Path:
    """One pass over the samples; returns the folder of the model that has practised."""
    torch.manual_seed(seed)
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    place = OneProcess.here("bf16")
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    model, optimizer = place.prepare(model, optimizer)
    encoded = [encode_sample(sample, tokenizer) for sample in samples]
    plan = Plan(len(encoded), batch_size, 1, seed, learning_rate, 0.05)
    for step in range(1, plan.num_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = plan.rate(step)
        ids, targets = pad([encoded[index] for index in plan.batch(step)])
        loss = practice_loss(model, ids.to(place.device), targets.to(place.device), place=place)
        place.backward(loss, is_last=True)
        place.clip(model, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % SAY_EVERY == 0 or step == plan.num_steps:
            sys.stderr.write(f"practice {step}/{plan.num_steps}  loss {float(loss.detach()):.4f}\n")
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return out


def pad(batch: Sequence[TokenSample]) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens, and what is learnt at each place; padding stands on the right, where a causal model never looks."""
    length = max(len(sample.ids) for sample in batch)
    ids = torch.zeros(len(batch), length, dtype=torch.long)
    targets = torch.full((len(batch), length), IGNORED)
    for row, sample in enumerate(batch):
        tokens = torch.tensor(sample.ids)
        ids[row, : len(tokens)] = tokens
        targets[row, : len(tokens)] = torch.where(torch.tensor(sample.has_loss), tokens, IGNORED)
    return ids, targets


def practice_loss(model: Any, ids: torch.Tensor, targets: torch.Tensor, *, place: OneProcess) -> torch.Tensor:
    """The mean over the learnt tokens; logits are made for these alone."""
    learnt = targets[:, 1:] != IGNORED
    with place.computing():
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        logits = model.lm_head(hidden[learnt])
    found: torch.Tensor = cross_entropy(logits.float(), targets[:, 1:][learnt])
    return found
