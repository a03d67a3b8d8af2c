"""Composes a run's config with veRL's own, checks it, and starts Ray and the trainer.

This module imports neither veRL nor Ray: both read the environment when they are imported, and `launch` sets it first.
"""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir  # type: ignore[import-not-found,unused-ignore]
from hydra.errors import HydraException  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf  # type: ignore[import-not-found,unused-ignore]
from omegaconf.errors import OmegaConfBaseException  # type: ignore[import-not-found,unused-ignore]

from rubricem_agent.yaml_config import CONFIGS, read_yaml
from rubricem_env.domain.errors import BoundaryError, ConfigError, UsageError
from rubricem_records.files.run_lock import lock_folder

from ..settings import prompt_hashes
from .checkpoint import FOLDER, RANKS, check_identity, identity_of, resumed_step
from .planning.run_shape import value_at
from .refusals import complete_config
from .saved_steps import MARKER
from .settings import SECTION, VerlSettings, read_section

VERL_CONFIGS = "pkg://verl.trainer.config"
"""Where Hydra finds veRL's own config."""
PLUGIN = "rubricem_trainers.verl_backend.plugin"
EXTERNAL_MODULES = "VERL_USE_EXTERNAL_MODULES"


def launch(file: Path, changes: Sequence[str]) -> None:
    """Train to the last step; raises what stopped the run, wherever in the cluster that was."""
    set_environment(file)
    config = read_config(file, changes)
    settings = read_section(OmegaConf.to_container(config.get(SECTION), resolve=True))
    complete_config(config, settings)
    engine = config.actor_rollout_ref.rollout.name
    if engine != "vllm" and PLUGIN not in os.environ.get(EXTERNAL_MODULES, "").split(","):
        raise ConfigError(
            f"actor_rollout_ref.rollout.name is {engine}, which veRL does not know without our plugin. Set "
            f"{EXTERNAL_MODULES}: {PLUGIN} under ray_kwargs.ray_init.runtime_env.env_vars, as verl_almanac_cpu.yaml "
            "does."
        )
    with closing(lock_folder(Path(config.trainer.default_local_dir).absolute(), key="trainer.default_local_dir")):
        check_resume(config, settings)
        refuse_unreachable(os.environ.get("RAY_ADDRESS", ""))
        import_module(f"{__package__}.trainer").train(config)


def set_environment(file: Path) -> None:
    """Give this process the variables that the config gives to Ray's workers; variables that are set already win."""
    variables = value_at(read_yaml(file), "ray_kwargs.ray_init.runtime_env.env_vars", {})
    for name, value in variables.items():
        os.environ.setdefault(str(name), str(value))


def read_config(file: Path, changes: Sequence[str]) -> Any:
    """Our file over its bases and veRL's defaults, with `key=value` changes on top.

    A base is found beside the file, among the package's configs, or within veRL. A key of our section need not be in
    the file to be changed: `read_section` knows which keys exist.

    Raises:
        ConfigError: a file cannot be read, or a key of veRL's is unknown.
    """
    overrides = [f"++{change}" if change.startswith(f"{SECTION}.") else change for change in changes]
    overrides.append(f"hydra.searchpath=[{VERL_CONFIGS},file://{CONFIGS.absolute()}]")
    try:
        with initialize_config_dir(config_dir=str(file.parent.absolute()), version_base=None):
            return compose(file.stem, overrides=overrides)
    except (HydraException, OmegaConfBaseException) as cause:
        raise ConfigError(f"the config {file} is refused: {' '.join(str(cause).split())}") from cause


def check_resume(config: Any, settings: VerlSettings) -> None:
    """Refuse a checkpoint of another run now: Ray and veRL take a minute to do so."""
    folder, step = Path(config.trainer.default_local_dir).absolute(), resumed_step(config)
    if not step:
        return
    if not (folder / f"global_step_{step}" / "actor").is_dir():
        raise UsageError(
            f"{folder / MARKER} names step {step}, whose weights are gone from {folder}: the run would begin anew, "
            "over what is there. Write the number of a global_step folder into it, or choose another "
            "trainer.default_local_dir."
        )
    identity = identity_of(config, settings)
    checkpoint = check_identity(folder / FOLDER, step=step, identity=identity)
    checkpoint.refuse_other_prompts(prompt_hashes(settings, settings.judge))
    saved = checkpoint.read_json("identity")
    if saved[RANKS] != identity[RANKS]:
        sys.stderr.write(
            f"verl_ssgrpo: step {step} was saved by {saved[RANKS]} ranks and resumes on {identity[RANKS]}: weights and "
            f"the optimiser's moments are kept and divided anew in {folder}; random states are not kept\n"
        )


def refuse_unreachable(address: str) -> None:
    """Connect to a cluster's address once: Ray itself waits for minutes where nothing listens.

    Raises:
        BoundaryError: an address of the form host:port at which nothing listens.
    """
    host, _, port = address.rpartition(":")
    if "/" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except OSError as cause:
        raise BoundaryError(
            f"nothing listens at RAY_ADDRESS={address} ({cause}). Start Ray there (`ray start --head --port={port}`), "
            "or unset the variable to start Ray on this machine."
        ) from cause
