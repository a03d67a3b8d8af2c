"""What every process of a run on CPUs needs before veRL does anything. Without VERL_PLATFORM=cpu it does nothing.

veRL imports the modules that VERL_USE_EXTERNAL_MODULES names while it is imported itself, in every process; the CPU
configs set both. Two functions have to be put in the place of others, because veRL has no switch for them:

- its start of torch's process groups asks for "cpu:gloo" beside the platform's backend, which is "cpu:gloo" again
  here, and torch refuses a device that stands twice;
- the reference policy asks for pinned memory, which only an accelerator's driver can give.
"""

import os
from functools import partial

from torch import Tensor

PLATFORM = "VERL_PLATFORM"
GLOO = "cpu:gloo"


def become_cpu() -> None:
    """Register the platform and put the two functions in place."""
    platforms.PlatformRegistry.register("cpu")(CPUPlatform)
    distributed.initialize_global_process_group_ray = partial(
        distributed.initialize_global_process_group_ray, backend=GLOO
    )
    Tensor.pin_memory = _unpinned  # type: ignore[assignment,method-assign]


def _unpinned(self: Tensor, *_: object, **__: object) -> Tensor:
    return self


if os.environ.get(PLATFORM) == "cpu":
    from verl.plugin.platform import platform_manager as platforms  # type: ignore[import-not-found,unused-ignore]
    from verl.utils import distributed  # type: ignore[import-not-found,unused-ignore]

    from trainers.verl_backend.cpu.platform import CPUPlatform

    become_cpu()
