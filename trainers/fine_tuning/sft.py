"""Span-masked supervised fine-tuning, readable top to bottom: rows, the process that computes, the loop, the command.

    python -m rubricem_trainers.fine_tuning.sft --config sft_almanac [epochs=1 ...]        one process, CPU or GPU

On eight GPUs `trainers/sft_accelerate.py` runs the same loop under `accelerate launch`; `accelerated.py` has its
processes.

It reads ChatML with loss spans. The loss is the mean over all learnt tokens of the global batch: tool output is
masked, and how the batch is cut into rows, packed or spread over processes does not change the gradient. A row may hold
several samples, which do not see each other. Stop it at any moment; the same command resumes from its last checkpoint
with the same next step.

Deliberately absent: dropout, label smoothing, evaluation during training.
"""

import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from rubricem_agent.data.chatml import TokenSample, encode_sample, read_samples
from rubricem_agent.learn.checkpoint import latest_checkpoint, save_checkpoint
from rubricem_agent.learn.credit import NonFiniteLossError
from rubricem_agent.policy.base import SYSTEM_FILE, model_folder
from rubricem_env.domain.errors import ConfigError
from rubricem_records.files.run_lock import lock_folder
from rubricem_records.files.trimming import trim_log
from rubricem_records.runs.run_log import METRICS_FILE, append_line

from ..lora import add_lora, merge_adapter, save_adapter
from ..model_checkpoint import disk_refusals, learning_parts, restore
from ..settings import read_command, run_command
from .settings import GIB, Precision, SftConfig, SftSchedule, describe_memory, plan_memory, refuse_small_gpu


class TokenizedRow(NamedTuple):
    """One row of tokens."""

    ids: Tensor
    """(1, length)."""
    positions: Tensor
    """(1, length), counted anew from 0 for each sample: by this, attention knows where a sample begins."""
    predicting: Tensor
    """Indices of the tokens whose successor is learnt."""
    targets: Tensor
    """Those successors."""

    @property
    def num_targets(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device) -> "TokenizedRow":
        return TokenizedRow(*(tensor.to(device) for tensor in self))


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices of samples by row, longest first into the first row with room; no row is longer than `capacity`."""
    rows: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = next((number for number, left in enumerate(room) if left >= lengths[index]), len(rows))
        if row == len(rows):
            rows.append([])
            room.append(capacity)
        rows[row].append(index)
        room[row] -= lengths[index]
    return rows


def make_rows(samples: Sequence[TokenSample], *, capacity: int, packing: bool) -> list[TokenizedRow]:
    """The rows of one optimiser step."""
    lengths = [len(sample.ids) for sample in samples]
    groups = pack(lengths, capacity) if packing else [[index] for index in range(len(samples))]
    return [make_row([samples[index] for index in group]) for group in groups]


def make_row(samples: Sequence[TokenSample]) -> TokenizedRow:
    """The samples end to end. The first token of a sample is never a target: nothing of its own precedes it."""
    ids = [token for sample in samples for token in sample.ids]
    positions = [position for sample in samples for position in range(len(sample.ids))]
    targets = [has_loss and index > 0 for sample in samples for index, has_loss in enumerate(sample.has_loss)]
    learnt = [index for index, is_target in enumerate(targets) if is_target]
    return TokenizedRow(
        ids=torch.tensor([ids]),
        positions=torch.tensor([positions]),
        predicting=torch.tensor([index - 1 for index in learnt], dtype=torch.long),
        targets=torch.tensor([ids[index] for index in learnt], dtype=torch.long),
    )


class OneProcess:
    """This process, on the GPU if there is one; the base of a run on many processes."""

    rank = 0
    num_processes = 1

    def __init__(self, precision: Precision, device: torch.device) -> None:
        self.device = device
        self._precision = precision

    @classmethod
    def here(cls, precision: Precision) -> "OneProcess":
        return cls(precision, torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    def prepare(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Move both to where they compute, and shard them where the processes share a model."""
        return model.to(self.device), optimizer

    def computing(self) -> AbstractContextManager[Any]:
        """The context of a forward pass: the precision."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._precision == "bf16")

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add the gradient of a row; `is_last` on the last row of a step."""
        loss.backward()  # type: ignore[no-untyped-call]

    def clip(self, model: nn.Module, max_norm: float) -> float:
        """Scale the gradient down to the norm if it is longer; returns the norm before."""
        return float(nn.utils.clip_grad_norm_(model.parameters(), max_norm))

    def total(self, number: float) -> float:
        """The sum over all processes."""
        return number

    def save_checkpoint(
        self, root: Path, step: int, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str
    ) -> None:
        """Write the checkpoint of a step; `identity` says which run it belongs to."""
        parts = learning_parts(step, model=model, optimizer=optimizer, identity=identity)
        save_checkpoint(root, step=step, parts=parts)

    def restore(self, root: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer, identity: str) -> int:
        """Load the latest checkpoint; returns its step, 0 where there is none."""
        checkpoint = latest_checkpoint(root)
        if checkpoint is None:
            return 0
        with checkpoint.restoring():
            return restore(checkpoint, model=model, optimizer=optimizer, identity=identity)

    def save(self, model: nn.Module, folder: Path) -> None:
        """Write the model as transformers loads it. Every process calls this."""
        trained: Any = model
        trained.save_pretrained(folder)


class StepResult(NamedTuple):
    """What one optimiser step amounted to."""

    step: int
    epoch: int
    loss: float
    """Nats for a learnt token."""
    grad_norm: float
    learning_rate: float
    learnt_tokens: int
    tokens_per_second: float


def fit(config: SftConfig, process: OneProcess, *, report: Callable[[StepResult, int], None]) -> Path:
    """Train to the end of the plan, or to `stop_after`; returns the folder of the trained model."""
    torch.manual_seed(config.seed)
    model, tokenizer = load_student(config.model)
    if config.recompute:
        recompute_activations(model)
    if config.lora is not None:
        add_lora(model, config.lora)
    samples, dropped, system = encode_all(config, tokenizer)
    if dropped and process.rank == 0:
        sys.stdout.write(
            f"{dropped} of {dropped + len(samples)} samples are longer than {config.max_tokens} tokens and are left "
            "out; max_tokens=N takes longer ones.\n"
        )
    plan = SftSchedule(
        len(samples), config.batch_size, config.epochs, config.seed, config.learning_rate, config.warmup_share
    )
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(
        (parameter for parameter in model.parameters() if parameter.requires_grad),
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
    )
    model, optimizer = process.prepare(model, optimizer)
    model.train()
    identity = (
        f"{plan} max_tokens={config.max_tokens} dropped={dropped} model={config.model} samples={digest_of(samples)} "
        f"weight_decay={config.weight_decay} max_grad_norm={config.max_grad_norm} precision={config.precision}"
        + (f" lora={config.lora.model_dump_json()}" if config.lora else "")
    )
    checkpoints = config.out / "checkpoints"
    done = process.restore(checkpoints, model=model, optimizer=optimizer, identity=identity)
    if process.rank == 0:
        trim_log(config.out / METRICS_FILE, done)  # a resumed run repeats the steps after its last checkpoint
    last = min(plan.num_steps, config.stop_after or plan.num_steps)
    for step in range(done + 1, last + 1):
        batch = [samples[index] for index in plan.batch(step)]
        rows = make_rows(batch, capacity=config.max_tokens, packing=config.packing)
        report(
            train_step(model, optimizer, rows=rows, process=process, plan=plan, step=step, clip=config.max_grad_norm),
            last,
        )
        if step % config.checkpoint_every == 0 or step == last:
            process.save_checkpoint(checkpoints, step, model=model, optimizer=optimizer, identity=identity)
    folder = config.out / "model"
    with disk_refusals():
        if config.lora is None:
            process.save(model, folder)
        else:
            adapted: Any = model
            save_adapter(adapted, config.out / "adapter", base=config.model, settings=config.lora)
            merge_adapter(config.out / "adapter", folder, base=config.model)
    if process.rank == 0:
        tokenizer.save_pretrained(folder)
        with disk_refusals():
            (folder / SYSTEM_FILE).write_text(f"{system}\n", encoding="utf-8")
    return folder


def recompute_activations(model: Any) -> None:
    """Let the backward pass compute a layer's activations again instead of keeping them."""
    settings = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=settings)
    else:  # its name before transformers 5.24
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)


def load_student(name: str) -> tuple[Any, Any]:
    """The model that is trained, in float32, and its tokenizer.

    Raises:
        ConfigError: there is none of that name.
    """
    folder = model_folder(Path(name))
    try:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as cause:
        said = str(cause).splitlines()[0]
        raise ConfigError(
            f"no model can be loaded from {name!r}: {said} Give as `model` a folder that save_pretrained wrote, "
            "or the name of one on the Hugging Face hub."
        ) from cause


class EncodedSamples(NamedTuple):
    """What is trained on."""

    fitting: list[TokenSample]
    dropped: int
    """Samples that are too long."""
    system: str
    """The system prompt of most of them."""


def encode_all(config: SftConfig, tokenizer: Any) -> EncodedSamples:
    """All samples that fit, and how many do not.

    Raises:
        ConfigError: none fits.
    """
    samples = read_samples(config.samples)
    if config.system is not None:
        samples = [sample.with_system(config.system) for sample in samples]
    encoded = [encode_sample(sample, tokenizer) for sample in samples]
    fitting = [sample for sample in encoded if len(sample.ids) <= config.max_tokens]
    if not fitting:
        longest = min(len(sample.ids) for sample in encoded)
        raise ConfigError(f"max_tokens is {config.max_tokens} and the shortest sample has {longest} tokens; raise it.")
    ((system, _),) = Counter(sample.messages[0].content for sample in samples).most_common(1)
    return EncodedSamples(fitting, len(encoded) - len(fitting), system)


def digest_of(samples: Sequence[TokenSample]) -> str:
    """What is trained on, and where it is learnt, in a few letters."""
    digest = hashlib.sha256()
    for sample in samples:
        digest.update(json.dumps([sample.ids, sample.has_loss]).encode())
    return digest.hexdigest()[:16]


def train_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    rows: Sequence[TokenizedRow],
    process: OneProcess,
    plan: SftSchedule,
    step: int,
    clip: float,
) -> StepResult:
    """One update from the rows of one batch; gradients are accumulated over them.

    Raises:
        NonFiniteLossError: the loss is no number; no update is made.
    """
    began = time.monotonic()
    rate = plan.rate(step)
    for group in optimizer.param_groups:
        group["lr"] = rate
    learnt = sum(row.num_targets for row in rows)
    loss_sum = 0.0
    share = share_of(rows, process)
    for number, row in enumerate(share, start=1):
        loss = row_loss(model, row.to(process.device), process=process) / learnt
        # Data-parallel back ends average gradients over the processes; ours is a sum over the rows.
        process.backward(loss * process.num_processes, is_last=number == len(share))
        loss_sum += float(loss.detach())
    loss_sum = process.total(loss_sum)
    norm = process.clip(model, clip)
    if not (torch.isfinite(torch.tensor([loss_sum, norm]))).all():
        raise NonFiniteLossError(
            f"step {step} has the loss {loss_sum} and the gradient norm {norm}; nothing is updated."
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    speed = sum(row.ids.numel() for row in rows) / max(1e-9, time.monotonic() - began)
    return StepResult(step, plan.epoch_of(step), loss_sum, norm, rate, learnt, speed)


def share_of(rows: Sequence[TokenizedRow], process: OneProcess) -> list[TokenizedRow]:
    """This process's rows. All get the same number: sharded models wait for each other at every pass."""
    empty = make_row([TokenSample(rows[0].ids[0, :2].tolist(), [False, False])])
    padded = [*rows, *[empty] * (-len(rows) % process.num_processes)]
    return padded[process.rank :: process.num_processes]


def row_loss(model: nn.Module, row: TokenizedRow, *, process: OneProcess) -> torch.Tensor:
    """The summed loss of a row, over the learnt tokens only: no other logits are made."""
    if not row.num_targets:
        row = row._replace(predicting=torch.zeros(1, dtype=torch.long, device=row.ids.device))
    with process.computing():
        logits = model(
            input_ids=row.ids, position_ids=row.positions, use_cache=False, logits_to_keep=row.predicting
        ).logits[0]
    if not row.num_targets:
        nothing: torch.Tensor = logits.float().sum() * 0.0
        return nothing
    summed: torch.Tensor = cross_entropy(logits.float(), row.targets, reduction="sum")
    return summed


def write_progress(log: Path, step: StepResult, last: int) -> None:
    """Write a step to metrics.jsonl and to the terminal."""
    append_line(log, step._asdict())
    sys.stdout.write(
        f"step {step.step}/{last}  loss {step.loss:.4f}  lr {step.learning_rate:.2e}  "
        f"{step.tokens_per_second:,.0f} tokens/s\n"
    )
    sys.stdout.flush()


def run(config: SftConfig, process: OneProcess) -> None:
    """Say what memory it takes, train with progress, and say where the model is.

    Raises:
        ConfigError: the GPU is too small, or an adapter is to be trained by many processes.
    """
    if config.lora is not None and process.num_processes > 1:
        raise ConfigError("an adapter is trained by one process; start it with trainers/sft.py, or leave lora out.")
    gpu_gib = None
    if process.device.type == "cuda":
        gpu_gib = torch.cuda.get_device_properties(process.device).total_memory / GIB
    memory = plan_memory(config, processes=process.num_processes)
    if process.rank == 0:
        sys.stdout.write(f"{describe_memory(memory, gpu_gib=gpu_gib)}\n")
    if gpu_gib is not None:
        refuse_small_gpu(memory, config, gpu_gib=gpu_gib, processes=process.num_processes)
    with closing(lock_folder(config.out)) if process.rank == 0 else nullcontext():
        # Only one process reports.
        progress = partial(write_progress, config.out / METRICS_FILE)
        folder = fit(config, process, report=progress if process.rank == 0 else lambda step, last: None)
        if process.rank == 0:
            sys.stdout.write(f"model: {folder}\n")


def run_sft(arguments: Sequence[str] | None, here: Callable[[Precision], OneProcess]) -> int:
    """The command line, wherever it computes: 2 and one sentence on stderr for a mistake, 130 for an interrupt."""

    def train() -> None:
        config = read_command(
            arguments,
            SftConfig,
            prog="python -m rubricem_trainers.fine_tuning.sft",
            description="Span-masked fine-tuning.",
        )
        run(config, here(config.precision))

    return run_command("sft", train)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train in this process."""
    return run_sft(arguments, OneProcess.here)


if __name__ == "__main__":
    sys.exit(main())
