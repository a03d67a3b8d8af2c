"""What is here: packages, GPUs, keys, disk and memory of the machine that a run is to start on."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

_QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
_PATIENCE = 20.0
"""Seconds; a driver that hangs answers never."""


class Machine(Protocol):
    """A machine as far as a preflight looks at it."""

    @property
    def environ(self) -> Mapping[str, str]: ...

    def version_of(self, package: str) -> str | None:
        """None where it is not installed."""
        ...

    def gpu_gib(self) -> list[float]:
        """The memory of each GPU; empty without any, or without a driver that answers."""
        ...

    def free_gib(self, folder: Path) -> float:
        """On the disk where the folder is, or will be."""
        ...

    def memory_gib(self) -> float: ...


class ThisMachine:
    """The one that this process runs on."""

    @property
    def environ(self) -> Mapping[str, str]:
        return os.environ

    def version_of(self, package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    def gpu_gib(self) -> list[float]:
        try:
            told = subprocess.run(_QUERY, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout
            return [float(line) / 1_024 for line in told.splitlines() if line.strip()]
        except (OSError, subprocess.SubprocessError, ValueError):
            return []

    def free_gib(self, folder: Path) -> float:
        place = folder.expanduser().absolute()
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free / 2**30

    def memory_gib(self) -> float:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
