"""Evaluates the checkpoints of a veRL run while it trains: each is merged, served, asked, and noted in the run's log.

A checkpoint's folder is `RUN/watch/step-N`: the merged model, which is removed after its evaluations, and one folder
for each benchmark, which `rubricem eval` resumes.
"""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import create_server
from time import monotonic, sleep
from typing import Any, Literal, NamedTuple

from rubricem_agent.cli.command import INCOMPLETE
from rubricem_agent.policy.base import SYSTEM_FILE
from rubricem_env.domain.errors import ConfigError, RubricEMError
from rubricem_records.files.atomic_files import MAKE_ROOM, write_atomic, writing
from rubricem_records.runs.log_lines import BenchmarkLine
from rubricem_records.runs.recorded_run import read_run
from rubricem_records.runs.run_log import METRICS_FILE, append_line

from ..process import python_command
from .saved_steps import MARKER, marked_step, saved_steps

Engine = Literal["vllm", "local"]
_TRIES = 3
"""How often the evaluation of a checkpoint is begun before it is left out."""
_FRAME = re.compile("[─│╭╮╰╯]")
"""What Typer draws around a usage error."""
_POLL_SECONDS, _START_SECONDS = 30.0, 1_800.0


class Watch(NamedTuple):
    """Which checkpoints are evaluated, on what, and how they are played."""

    run: Path
    benchmarks: Sequence[str]
    every: int = 1
    """Steps whose number is a multiple of it are evaluated."""
    engine: Engine = "vllm"
    """`vllm serve`, or transformers within the evaluation."""
    options: Sequence[str] = ()
    """Further options of `rubricem eval`."""

    def due(self) -> list[tuple[int, list[str]]]:
        """The saved steps that wait for an evaluation, and on which benchmarks.

        Raises:
            FileFormatError: the folder holds no run.
            UsageError: the file of the last saved step holds none.
        """
        marker = self.run / MARKER
        last = marked_step(marker) if marker.is_file() else 0
        done = {(line.step, line.benchmark) for line in read_run(self.run).log.benchmarks}
        waiting = [
            (step, [name for name in self.benchmarks if (step, name) not in done])
            for step in saved_steps(self.run)
            if step % self.every == 0 and step <= last
        ]
        return [(step, names) for step, names in waiting if names]

    def evaluate(self, step: int, benchmarks: Sequence[str]) -> Iterator[BenchmarkLine]:
        """Evaluate a checkpoint; each score is in the log when it is given.

        Raises:
            ConfigError: the checkpoint cannot be merged or served, or an evaluation fails.
        """
        settings = read_run(self.run).settings
        model = self.model(step)
        with writing(model, MAKE_ROOM):
            if not model.is_dir():
                part = model.with_name("model.part")
                shutil.rmtree(part, ignore_errors=True)
                merge_shards(self.run / f"global_step_{step}" / "actor", part)
                if settings.get("system"):
                    write_atomic(part / SYSTEM_FILE, settings["system"])
                part.rename(model)
        options = [*self.options, *(["--style", "react"] if settings.get("style") == "react" else [])]
        with self._policy(model) as policy:
            for name in benchmarks:
                result = _run_eval([name, "--policy", policy, "--out", str(model.with_name(name)), *options])
                line = BenchmarkLine(step=step, benchmark=name, **result)
                append_line(self.run / METRICS_FILE, line.model_dump(mode="json"))
                yield line
        shutil.rmtree(model, ignore_errors=True)

    def refuse_unfit(self, benchmark: str) -> None:
        """Plan an evaluation that calls no model; raises ConfigError with what `rubricem eval` says of its options."""
        arguments = [benchmark, "--policy", "local:checkpoint", *self.options, "--dry-run", "--quiet"]
        command = python_command("rubricem_agent.cli.main", "eval", *arguments)
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            said = " ".join(_FRAME.sub(" ", done.stderr).split())[-500:]
            raise ConfigError(f"`rubricem eval {' '.join(arguments)}` ended with code {done.returncode}: {said}")

    def model(self, step: int) -> Path:
        """Where the merged model of a step is while the step is evaluated."""
        return self.run / "watch" / f"step-{step}" / "model"

    @contextmanager
    def _policy(self, model: Path) -> Iterator[str]:
        """The policy as `rubricem eval` names it, while it can be asked."""
        if self.engine == "local":
            yield f"local:{model}"
            return
        with create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = ["vllm", "serve", str(model), "--served-model-name", "policy", "--host", "127.0.0.1"]
        command += ["--port", str(port), "--logprobs-mode", "processed_logprobs"]
        with served(command, f"http://127.0.0.1:{port}/health", seconds=_START_SECONDS):
            yield f"vllm:policy@http://127.0.0.1:{port}/v1#{model}"


def watch(given: Watch, report: Callable[[BenchmarkLine | str], None], *, once: bool = False) -> None:
    """Evaluate every checkpoint that is due, and with `once` end then; a failure is reported and tried again.

    Raises:
        FileFormatError: the folder holds no run.
        ConfigError: vLLM is not installed, the options are not those of an evaluation, or, with `once`, one fails.
    """
    for name in given.benchmarks:
        given.refuse_unfit(name)
    if given.engine == "vllm" and shutil.which("vllm") is None:
        raise ConfigError("there is no command vllm here. Install vLLM, or play the model by --engine local.")
    tries: dict[int, int] = {}
    while True:
        waiting = [(step, names) for step, names in given.due() if tries.get(step, 0) < _TRIES]
        for step, names in waiting:
            tries[step] = tries.get(step, 0) + 1
            try:
                for line in given.evaluate(step, names):
                    report(line)
            except RubricEMError as failure:
                if once:
                    raise
                if tries[step] == _TRIES:
                    shutil.rmtree(given.model(step), ignore_errors=True)
                again = "It is tried again." if tries[step] < _TRIES else "It is left out."
                report(f"step {step} was not evaluated: {failure} {again}")
        if once:
            return
        sleep(_POLL_SECONDS)


def merge_shards(actor: Path, target: Path) -> None:
    """Merge a checkpoint's shards with veRL's own command.

    Raises:
        ConfigError: the command failed; the message quotes the end of its output.
    """
    options = ("--backend", "fsdp", "--local_dir", str(actor), "--target_dir", str(target))
    command = python_command("verl.model_merger", "merge", *options)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(
            f"veRL could not merge {actor}: {done.stderr.strip()[-300:]} Run this where veRL is installed."
        )


@contextmanager
def served(command: Sequence[str], health: str, *, seconds: float) -> Iterator[None]:
    """A server of its own process group, from the moment at which it answers until the end of the block.

    Raises:
        ConfigError: it ends, or does not answer in time.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = monotonic() + seconds
        while not _answers(health):
            if process.poll() is not None:
                raise ConfigError(f"{command[0]} ended with code {process.returncode} before it answered.")
            if monotonic() > deadline:
                raise ConfigError(f"{command[0]} did not answer at {health} within {seconds:.0f} s.")
            sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(health: str) -> bool:
    try:
        with urllib.request.urlopen(health, timeout=5):
            return True
    except OSError:
        return False


def _run_eval(arguments: Sequence[str]) -> Mapping[str, Any]:
    """The score of `rubricem eval`, with its interval where it has one."""
    command = python_command("rubricem_agent.cli.main", "eval", *arguments, "--json")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    run = json.loads(done.stdout)["runs"][0] if done.returncode in (0, INCOMPLETE) else {}
    # A checkpoint that answers nothing has the score of that; an evaluation that lacks grades has none.
    is_graded = run and (done.returncode == 0 or run["manifest"]["warning"])
    judged = run["judges"] if is_graded else []
    if not judged:
        raise ConfigError(f"`rubricem eval {' '.join(arguments)}` ended with code {done.returncode} and no score.")
    spread = judged[0]["spread"]
    return {"score": judged[0]["score"], "low": spread["low"], "high": spread["high"]}
