"""veRL's platform for machines without an accelerator: the CPU instead of a GPU, gloo instead of NCCL.

veRL asks a platform for everything that differs between accelerators. It reserves "GPUs" from Ray, so the config gives
Ray one logical GPU for each rank (`ray_kwargs.ray_init.num_gpus`).
"""

import resource
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase  # type: ignore[import-not-found,unused-ignore]

NAME = "cpu"
_KIBIBYTE = 1_024


def _nothing(*_: object, **__: object) -> None:
    """A CPU has nothing to choose, to synchronise, to empty, to limit or to profile."""


class CPUPlatform(PlatformBase):  # type: ignore[misc,unused-ignore]
    """One device, always available."""

    device_name = vendor_name = NAME
    nvtx_range = nullcontext
    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = cudart = _nothing

    @property
    def device_module(self) -> ModuleType:
        return _MODULE

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        """A device, not an index: veRL passes it to `Tensor.to`, and a CPU has no index."""
        return torch.device(NAME)

    def device_count(self) -> int:
        return 1

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        """No: veRL then sends weights to vLLM through shared memory."""
        return False


def _device_module() -> ModuleType:
    """`torch.cpu` with the calls that veRL makes on `torch.cuda`, most of which do nothing here."""
    module = ModuleType("rubricem_torch_cpu")
    module.__dict__.update({name: getattr(torch.cpu, name) for name in dir(torch.cpu) if not name.startswith("__")})
    idle = ("empty_cache", "ipc_collect", "synchronize", "set_device", "set_per_process_memory_fraction")
    module.__dict__.update(dict.fromkeys(idle, _nothing))
    counters = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    module.__dict__.update(
        dict.fromkeys(counters, lambda *_, **__: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE)
    )
    module.__dict__.update(
        is_available=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: torch.device(NAME),
        get_device_name=lambda *_: NAME,
        mem_get_info=lambda *_: (0, 0),
        get_rng_state=lambda *_: torch.get_rng_state(),
        set_rng_state=lambda state, *_: torch.set_rng_state(state),
    )
    return module


_MODULE = _device_module()
