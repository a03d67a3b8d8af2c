"""Compares the files of two runs field by field, to the last digit."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from rubricem_records.files.packed_lines import PACKED

CLOCK = ("seconds", "time", "wall", "began", "ended", "created", "at", "size", "num_bytes", "sha256", "out")
"""What a clock or the place of the folder gives, and offsets and hashes of files that hold such numbers."""


def differences(whole: Path, parts: Path, names: Sequence[str]) -> list[str]:
    """Where the files of these names, in any folder below, differ."""
    found = []
    for name in names:
        paths = sorted(path.relative_to(whole) for path in whole.rglob(name))
        if not paths:
            found.append(f"{name} is in neither run")
        for path in paths:
            if not (parts / path).exists():
                found.append(f"{path} is missing")
                continue
            found += [f"{path}: {where}" for where in _differing(read(whole / path), read(parts / path), "")]
    return found


def read(path: Path) -> Any:
    """The content as JSON values and arrays."""
    if path.name.endswith((".jsonl", PACKED)):
        lines = [json.loads(line) for line in (gzip.open if path.suffix == ".gz" else open)(path)]
        # The first line of a record has a name that was drawn for it.
        return [line | {"name": ""} if "record" in line else line for line in lines]
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    if path.suffix == ".safetensors":
        return dict(load_file(path))
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return dict(arrays)
    return path.read_bytes()


def _differing(one: Any, other: Any, where: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            if key not in CLOCK:
                yield from _differing(one.get(key), other.get(key), f"{where}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from _differing(first, second, f"{where}[{index}]")
    elif isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.shape != other.shape or not np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
            yield f"{where} is another array"
    elif one != other:
        yield f"{where} is {one!r:.60} and {other!r:.60}"
