"""A checkpoint that veRL saves on one number of ranks is loaded by veRL on another, number for number."""

import math
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import distributed, multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import Qwen3Config, Qwen3ForCausalLM
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager

from trainers.verl_backend.verl_parts import reshard

SMALL = {
    # five rows on three ranks are two, two and one; on four, the last rank has none
    "vocab_size": 13,
    "hidden_size": 5,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 2,
    "intermediate_size": 7,
    "tie_word_embeddings": False,
}


def in_ranks(ranks, work, folder, *arguments):
    """Run `work(folder, *arguments)` in so many processes of one gloo group."""
    # Forked: importing torch anew takes longer than all else here.
    multiprocessing.start_processes(_in_rank, (ranks, work, folder, *arguments), nprocs=ranks, start_method="fork")


def _in_rank(rank, ranks, work, folder, *arguments):
    store = distributed.FileStore(str(folder / f"store-{work.__name__}-{ranks}"), ranks)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    work(folder, *arguments)
    distributed.destroy_process_group()


def sharded(shape, with_lora):
    """A model, its optimiser and its mesh: (ranks,), or (copies, ranks of one copy)."""
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("ddp", "fsdp")[-len(shape) :])
    model = Qwen3ForCausalLM(Qwen3Config(**SMALL))
    layer = model.model.layers[0]
    if with_lora:
        model = get_peft_model(model, LoraConfig(r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    return mesh, model, optimizer, FSDPCheckpointManager(model, optimizer, schedule)


def save_trained(folder, shape, with_lora):
    torch.manual_seed(3)
    _, model, optimizer, manager = sharded(shape, with_lora)
    for _ in range(2):
        model(torch.arange(12)[None]).logits.square().sum().backward()
        optimizer.step()
    manager.save_checkpoint(str(folder / "actor"))
    save_full(folder / "before.pt", model, optimizer)


def resume(folder, shape, with_lora):
    torch.manual_seed(4)
    mesh, model, optimizer, manager = sharded(shape, with_lora)
    role = SimpleNamespace(actor=SimpleNamespace(engine=SimpleNamespace(device_mesh=mesh)))
    worker = SimpleNamespace(worker_dict={"ref": SimpleNamespace(actor=None), "actor": role})
    reshard(worker, folder / "actor")
    manager.load_checkpoint(str(folder / "actor"))
    save_full(folder / "after.pt", model, optimizer)


def save_full(file, model, optimizer):
    """Every number of a model and its optimiser, by name, in one file."""
    states = {name: value.full_tensor() for name, value in model.named_parameters()}
    names = list(states)
    for index, moments in optimizer.state_dict()["state"].items():
        for kind, value in moments.items():
            states[f"{names[index]}: {kind}"] = value.full_tensor() if hasattr(value, "full_tensor") else value
    if distributed.get_rank() == 0:
        torch.save(states, file)


@pytest.mark.parametrize(
    ("saved", "resumed", "with_lora"),
    [
        ((2,), (1,), False),
        ((1,), (2,), False),
        ((2,), (4,), False),
        ((2, 2), (3,), False),
        ((3,), (2, 2), False),
        ((3,), (2,), True),
    ],
)
def test_weights_and_moments_are_the_same_numbers_on_another_number_of_ranks(tmp_path, saved, resumed, with_lora):
    in_ranks(math.prod(saved), save_trained, tmp_path, saved, with_lora)
    in_ranks(math.prod(resumed), resume, tmp_path, resumed, with_lora)
    before, after = torch.load(tmp_path / "before.pt"), torch.load(tmp_path / "after.pt")
    # eleven matrices and norms of the layer, embedding, norm and head: each with two moments and a count of steps
    # with LoRA seven of the matrices have two more, which alone are trained
    assert len(before) == (14 + 14 + 3 * 14 if with_lora else 4 * 14)
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
