"""`vllm serve` with the tiny model while a test run lasts, in a process group that is killed at its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

from rubricem_env.testing.loopback import free_port
from tests.lanes.vllm.tiny_model import CORPUS, MAX_LENGTH, write_model

NAME = "tiny"
START_SECONDS = 240.0
"""A failed start hangs; a good one takes half a minute on two free cores, and two minutes on busy ones."""
STOP_SECONDS = 10.0
SETTINGS = {
    # Without it the first start compiles for a minute.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}
OPTIONS = (
    *("--served-model-name", NAME, "--host", "127.0.0.1"),
    *("--dtype", "float32", "--enforce-eager", "--max-num-seqs", "8"),
    *("--generation-config", "vllm", "--logprobs-mode", "processed_logprobs"),
)


class Served(NamedTuple):
    """A server that is up."""

    url: str
    folder: Path
    """The model that it serves."""
    start_seconds: float


@contextmanager
def serve_tiny(
    folder: Path, *, corpus: Iterable[str] = CORPUS, max_length: int = MAX_LENGTH, options: Sequence[str] = ()
) -> Iterator[Served]:
    """Write the model, with a tokenizer for `corpus`, into `folder` and serve it.

    Raises:
        RuntimeError: it did not come up in time; the message ends with its last lines.
    """
    model, port, log = write_model(folder / "model", corpus, max_length=max_length), free_port(), folder / "serve.log"
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(model), "--port", str(port), *OPTIONS]
    command += ["--max-model-len", str(max_length), *options]
    begun = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **SETTINGS}, start_new_session=True
        )
    try:
        _wait_until_up(process, f"http://127.0.0.1:{port}/health", log=log)
        yield Served(f"http://127.0.0.1:{port}/v1", model, time.monotonic() - begun)
    finally:
        _stop(process)


def _wait_until_up(process: subprocess.Popen[bytes], url: str, *, log: Path) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        try:
            if httpx2.get(url, timeout=2.0).status_code == httpx2.codes.OK:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.5)
    reason = "died" if process.poll() is not None else f"was not up after {START_SECONDS:.0f} s"
    raise RuntimeError(f"vllm serve {reason}:\n" + "\n".join(log.read_text("utf-8", "replace").splitlines()[-30:]))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The engine is a process of its own: the whole group goes, politely first."""
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
