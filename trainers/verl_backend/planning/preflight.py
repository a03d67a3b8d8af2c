"""Looks at everything that a run needs before anything is started, and says all that is missing at once.

It imports neither veRL nor torch nor Ray: their absence is one of the things that it tells.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.planning.checks import Finding, check_run
from trainers.verl_backend.planning.machine import Machine, ThisMachine
from trainers.verl_backend.planning.run_file import read_run_file
from trainers.verl_backend.planning.run_shape import read_run_shape

TRY_INSTEAD = "python trainers/verl_ssgrpo.py --config-name verl_almanac_cpu"
"""The same path on two CPU cores."""


class PreflightError(ConfigError):
    """A run lacks something that it needs; nothing was started."""


class Readiness(NamedTuple):
    """What was found, the good and the bad."""

    findings: Sequence[Finding]

    @property
    def missing(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.is_ok]


def look(file: Path, changes: Iterable[str] = (), *, machine: Machine | None = None) -> Readiness:
    """Look at everything that the run of a config needs.

    Raises:
        ConfigError: the config itself is refused.
    """
    return Readiness(check_run(read_run_shape(read_run_file(file, changes)), machine or ThisMachine()))


def require_ready(file: Path, changes: Iterable[str] = (), *, machine: Machine | None = None) -> None:
    """Write down all that is missing, each with its way out; where something is, refuse to go on.

    Raises:
        ConfigError: the config itself is refused.
        PreflightError: something is missing.
    """
    missing = look(file, changes, machine=machine).missing
    if not missing:
        return
    width = max(len(finding.what) for finding in missing)
    for finding in missing:
        sys.stderr.write(f"  {finding.what:<{width}}  {finding.found}\n  {'':<{width}}  -> {finding.way_out}\n")
    things = "thing is" if len(missing) == 1 else "things are"
    message = f"{len(missing)} {things} missing for {file.stem}; nothing was started."
    if file.stem != "verl_almanac_cpu":
        message += f" The same path without GPUs, keys or network: {TRY_INSTEAD}"
    raise PreflightError(message)
