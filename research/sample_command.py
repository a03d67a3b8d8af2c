"""The command of a script that writes samples to fine-tune a policy on."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rubricem_agent.data.chatml import ChatSample
from rubricem_env.domain.base import Frozen
from trainers.settings import make_out, read_command, run_command


class SampleSettings(Frozen):
    """What every such script is told."""

    out: Path
    """The folder of samples.jsonl."""


SettingsT = TypeVar("SettingsT", bound=SampleSettings)


def run_sample_command(
    name: str,
    arguments: Sequence[str] | None,
    kind: type[SettingsT],
    write_samples: Callable[[SettingsT], Sequence[ChatSample]],
) -> int:
    """Write the samples of `python -m research.NAME`. A user error gives exit code 2 and one sentence on stderr."""

    def run() -> None:
        config = read_command(arguments, kind, prog=f"python -m research.{name}", description="Write samples.")
        make_out(config.out, settings=config.model_dump_json())
        samples = write_samples(config)
        sys.stdout.write(f"{len(samples)} samples: {config.out / 'samples.jsonl'}\n")

    return run_command(name, run)
