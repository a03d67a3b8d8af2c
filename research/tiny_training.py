"""Pretrains a very small Qwen3 on a CPU: a lean forward pass in bf16, Muon, and rounds that resume to the last bit.

A round makes its own texts from its number, so a checkpoint needs no more than weights, moments and the round. One
thread and one seed give the same weights on the same kind of processor.
"""

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save
from torch import Tensor
from torch.nn import functional
from transformers import Qwen3ForCausalLM

from research.tiny_pretraining import LearntText
from rubricem_agent.policy.dense_decoder import Rotation, rms_norm, rotate
from rubricem_env.domain.base import Frozen, UnitScore
from rubricem_records.files.atomic_files import write_atomic

BLOCK = 192
"""Queries at once: plain products of blocks are faster than the fused attention of a CPU at these shapes."""
IGNORED = -100


class Course(Frozen):
    """A part of the training."""

    rounds: int
    learning_rate: float
    """Of matrices, by Muon."""
    embedding_rate: float
    """Of embeddings and norms, by Adam."""
    batch_tokens: int
    warmup: int
    """Steps."""
    decay_from: UnitScore
    """The share of the rounds after which the rates decay, linearly to nothing."""

    def factor(self, done: float, step: int) -> float:
        """Of the rates, where `done` rounds are over."""
        left = (1 - done / self.rounds) / max(1e-9, 1 - self.decay_from)
        return min(1.0, (step + 1) / self.warmup) * min(1.0, max(0.02, left))


def hidden_states(model: Qwen3ForCausalLM, ids: Tensor) -> Tensor:
    """What the head reads, (rows, tokens, width), as the model itself computes it."""
    trunk: Any = model.model
    hidden = trunk.embed_tokens(ids)
    cos, sin = trunk.rotary_emb(hidden[:1], torch.arange(ids.shape[1])[None])
    rotation = cos[0, :, None], sin[0, :, None]
    for layer in trunk.layers:
        hidden = hidden + _attention(layer.self_attn, rms_norm(layer.input_layernorm, hidden), rotation)
        normed, mlp = rms_norm(layer.post_attention_layernorm, hidden), layer.mlp
        gate, up = functional.linear(normed, torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])).chunk(2, -1)
        hidden = hidden + mlp.down_proj(functional.silu(gate) * up)
    return rms_norm(trunk.norm, hidden)


def _attention(layer: Any, normed: Tensor, rotation: Rotation) -> Tensor:
    """Causal attention; every head has its own keys and values."""
    rows, length, _ = normed.shape
    weight = torch.cat([layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight])
    states = functional.linear(normed, weight).view(rows, length, 3, -1, layer.head_dim)
    query, key, value = states.unbind(2)
    query = rotate(rms_norm(layer.q_norm, query), rotation).transpose(1, 2) * layer.head_dim**-0.5
    key, value = rotate(rms_norm(layer.k_norm, key), rotation).transpose(1, 2), value.transpose(1, 2)
    query, key = query.to(value.dtype), key.to(value.dtype)
    mixed = []
    for start in range(0, length, BLOCK):
        stop = min(start + BLOCK, length)
        scores = query[:, :, start:stop] @ key[:, :, :stop].transpose(-1, -2)
        hidden = torch.full((stop - start, stop), -math.inf, dtype=scores.dtype).triu(start + 1)
        with torch.autocast("cpu", enabled=False):
            weights = torch.softmax(scores + hidden, -1)
        mixed.append(weights @ value[:, :, :stop])
    out: Tensor = layer.o_proj(torch.cat(mixed, 2).transpose(1, 2).reshape(rows, length, -1))
    return out


class Muon:
    """Muon for matrices, Adam for embeddings and norms, with all moments by parameter name."""

    def __init__(self, model: Qwen3ForCausalLM) -> None:
        self._parameters = {name: each for name, each in model.named_parameters() if each.requires_grad}
        self.moments = {f"{name}.first": torch.zeros_like(each) for name, each in self._parameters.items()}
        self.moments |= {
            f"{name}.second": torch.zeros_like(each) for name, each in self._parameters.items() if not _is_matrix(name)
        }
        self.step_number = 0

    @torch.no_grad()
    def step(self, rate: float, embedding_rate: float) -> None:
        """Update every parameter from its gradient, which is cleared."""
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), 1.0)
        self.step_number += 1
        alike: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}
        for name, parameter in self._parameters.items():
            gradient, first = parameter.grad, self.moments[f"{name}.first"]
            if gradient is None:
                continue
            if _is_matrix(name):
                first.lerp_(gradient, 0.05)
                ahead = gradient.lerp(first, 0.95)
                wide = ahead.T if _is_tall(ahead) else ahead
                alike.setdefault(tuple(wide.shape), []).append((parameter, wide))
            else:
                second = self.moments[f"{name}.second"]
                first.lerp_(gradient, 0.1)
                second.lerp_(gradient.square(), 0.02)
                scale = (second / (1 - 0.98**self.step_number)).sqrt_().add_(1e-8)
                parameter.addcdiv_(first, scale, value=-embedding_rate / (1 - 0.9**self.step_number))
            parameter.grad = None
        for group in alike.values():
            # Matrices of a shape go through one product.
            updates = orthogonal(torch.stack([wide for _, wide in group]))
            for (matrix, _), update in zip(group, updates, strict=True):
                rows, columns = matrix.shape
                matrix.add_(update.T if _is_tall(matrix) else update, alpha=-rate * max(1.0, rows / columns) ** 0.5)


def _is_matrix(name: str) -> bool:
    return name.endswith("_proj.weight")


def _is_tall(matrix: Tensor) -> bool:
    return matrix.shape[0] > matrix.shape[1]


def orthogonal(wide: Tensor) -> Tensor:
    """Close to the nearest matrices whose singular values are one, by five Newton-Schulz steps in bf16.

    The matrices (number, rows, columns) have no more rows than columns.
    """
    near = wide.bfloat16()
    near = near / (near.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        square = near @ near.mT
        near = torch.baddbmm(near, torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315), near, beta=3.4445)
    return near.float()


class PaddedBatch(NamedTuple):
    """Tokens, the target at each position and its weight; padding is on the right, where a causal model never looks."""

    ids: Tensor
    targets: Tensor
    weights: Tensor

    @classmethod
    def of(cls, texts: Sequence[LearntText]) -> "PaddedBatch":
        length = -(-max(len(text.ids) for text in texts) // 16) * 16
        ids = torch.zeros(len(texts), length, dtype=torch.long)
        targets = torch.full((len(texts), length), IGNORED)
        weights = torch.zeros(len(texts), length)
        for row, text in enumerate(texts):
            stop = len(text.ids)
            ids[row, :stop] = torch.tensor(text.ids)
            weights[row, : stop - 1] = torch.tensor(text.weights[1:])
            targets[row, : stop - 1] = ids[row, 1:stop]
        targets[weights == 0] = IGNORED
        return cls(ids, targets, weights)


def weighted_loss(model: Qwen3ForCausalLM, batch: PaddedBatch) -> tuple[Tensor, Tensor]:
    """The weighted mean over the targets, and the logits, which are computed for these alone."""
    learnt = batch.targets != IGNORED
    hidden = hidden_states(model, batch.ids)[learnt]
    logits = functional.linear(hidden, model.get_input_embeddings().weight)  # type: ignore[arg-type]
    losses = functional.cross_entropy(logits.float(), batch.targets[learnt], reduction="none")
    weights = batch.weights[learnt]
    return (losses * weights).sum() / weights.sum(), logits


def batches(texts: Iterable[LearntText], tokens: int, rng: np.random.Generator) -> Iterator[PaddedBatch]:
    """Texts of about equal length together, `tokens` of them with the padding, in a random order."""
    groups: list[list[LearntText]] = [[]]
    for text in sorted(texts, key=lambda text: len(text.ids)):
        if groups[-1] and len(text.ids) * (len(groups[-1]) + 1) > tokens:
            groups.append([])
        groups[-1].append(text)
    for index in rng.permutation(len(groups)).tolist():
        yield PaddedBatch.of(groups[index])


def copied_share(model: Qwen3ForCausalLM, drills: Sequence[PaddedBatch], weight: float) -> float:
    """Of the targets with exactly this weight, the share that the model would write."""
    right = total = 0
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for batch in drills:
            _, logits = weighted_loss(model, batch)
            learnt = batch.targets != IGNORED
            has_weight = batch.weights[learnt] == weight
            right += int((logits.argmax(-1) == batch.targets[learnt])[has_weight].sum())
            total += int(has_weight.sum())
    return right / max(1, total)


def train_course(
    model: Qwen3ForCausalLM,
    course: Course,
    texts_of: Callable[[int], Iterable[LearntText]],
    *,
    saved: Path,
    save_every: int,
    seed: int,
    report: Callable[[], str],
) -> None:
    """Train all rounds, from the checkpoint `saved` if there is one; `texts_of` gives the texts of a round."""
    optimizer = Muon(model)
    begin = restore(saved, model, optimizer) if saved.exists() else 0
    started = time.monotonic()
    for round_ in range(begin, course.rounds):
        rng = np.random.default_rng([seed, round_])
        group = list(batches(texts_of(round_), course.batch_tokens, rng))
        losses = 0.0
        for number, batch in enumerate(group):
            with torch.autocast("cpu", torch.bfloat16):
                loss, _ = weighted_loss(model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            factor = course.factor(round_ + number / len(group), optimizer.step_number)
            optimizer.step(course.learning_rate * factor, course.embedding_rate * factor)
            losses += float(loss.detach())
        seconds = time.monotonic() - started
        line = f"{saved.stem} {round_ + 1}/{course.rounds}  {seconds:.0f} s  loss {losses / len(group):.3f}"
        if (round_ + 1) % save_every == 0 or round_ + 1 == course.rounds:
            weights = {name: each.detach() for name, each in model.named_parameters()}
            counts = {"round": torch.tensor(round_ + 1), "step": torch.tensor(optimizer.step_number)}
            write_atomic(saved, save({**weights, **optimizer.moments, **counts}))
            line += f"  {report()}"
        sys.stderr.write(f"{line}\n")


def restore(saved: Path, model: Qwen3ForCausalLM, optimizer: Muon | None = None) -> int:
    """Load a checkpoint into the model, and into the optimiser if one is given; returns the rounds that are over."""
    tensors = load_file(str(saved))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
    if optimizer is not None:
        for name, moment in optimizer.moments.items():
            moment.copy_(tensors[name])
        optimizer.step_number = int(tensors["step"])
    return int(tensors["round"])
