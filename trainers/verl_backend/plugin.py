"""Prepares veRL in every process of a run: the transformers engine by name, and with VERL_PLATFORM=cpu the CPU.

veRL imports the modules that VERL_USE_EXTERNAL_MODULES names while it is imported itself; the CPU configs set both
variables. Nothing of `cpu/` is imported for a GPU run that does not choose the transformers engine.

On a CPU two functions are replaced, for which veRL has no switch:

- veRL starts torch's process groups with "cpu:gloo" beside the platform's backend, which is "cpu:gloo" here as well,
  and torch refuses a device that is named twice;
- the reference policy asks for pinned memory, which only an accelerator's driver can give.
"""

import os
from functools import partial
from importlib import import_module

from torch import Tensor

from .verl_names import ENGINE

REPLICA = f"{__package__}.cpu.replica"


if "VERL_USE_EXTERNAL_MODULES" in os.environ:
    if os.environ.get("VERL_PLATFORM") == "cpu":
        # Before all other modules of veRL, which ask for the platform when they are imported.
        platforms = import_module("verl.plugin.platform.platform_manager").PlatformRegistry
        distributed = import_module("verl.utils.distributed")
        platforms.register("cpu")(import_module(f"{__package__}.cpu.platform").CPUPlatform)
        start = partial(distributed.initialize_global_process_group_ray, backend="cpu:gloo")
        distributed.initialize_global_process_group_ray = start  # type: ignore[attr-defined]
        Tensor.pin_memory = lambda self, *_, **__: self  # type: ignore[method-assign]
    # By its dotted name: the engine's modules are imported when it is used.
    import_module("verl.workers.rollout.base")._ROLLOUT_REGISTRY[(ENGINE, "async")] = f"{REPLICA}.WeightSender"
    replicas = import_module("verl.workers.rollout.replica").RolloutReplicaRegistry
    replicas.register(ENGINE, lambda: import_module(REPLICA).TransformersReplica)
