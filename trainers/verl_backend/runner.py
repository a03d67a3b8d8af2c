"""Composes the config with veRL's own, and starts Ray and the trainer: imported when everything has been checked."""

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra import compose, initialize_config_dir  # type: ignore[import-not-found,unused-ignore]
from hydra.errors import HydraException  # type: ignore[import-not-found,unused-ignore]
from omegaconf import OmegaConf  # type: ignore[import-not-found,unused-ignore]
from omegaconf.errors import OmegaConfBaseException  # type: ignore[import-not-found,unused-ignore]

from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.keeping import FOLDER, refuse_other_run, run_identity, shape_of
from trainers.verl_backend.modes import refuse_impossible
from trainers.verl_backend.settings import SECTION, read_section

TASK_RUNNER = "trainers.verl_backend.task_runner"
MARKER = "latest_checkpointed_iteration.txt"
"""Where veRL writes down which step is saved."""


def launch(file: Path, changes: Sequence[str]) -> None:
    """Train to the end of the plan.

    Raises:
        RubricEMError: what stopped the run, wherever in the cluster it was raised.
    """
    set_environment(file)
    config = read_config(file, changes)
    refuse_impossible(config, read_section(OmegaConf.to_container(config.get(SECTION), resolve=True)))
    check_resume(config)
    # Not before now: what veRL does when it is imported depends on the environment.
    import_module(TASK_RUNNER).train(config)


def read_config(file: Path, changes: Sequence[str]) -> Any:
    """Our file over veRL's defaults, with `key=value` changes on top.

    Raises:
        ConfigError: a file cannot be read, or a key of veRL's is unknown.
    """
    try:
        with initialize_config_dir(config_dir=str(file.parent.absolute()), version_base=None):
            return compose(file.stem, overrides=[_with_defaults(change) for change in changes])
    except (HydraException, OmegaConfBaseException) as cause:
        raise ConfigError(f"the config {file} is refused: {' '.join(str(cause).split())}") from cause


def check_resume(config: Any) -> None:
    """Refuse a checkpoint of another run now: Ray and veRL take a minute to say so."""
    settings = read_section(OmegaConf.to_container(config.get(SECTION), resolve=True))
    folder = Path(config.trainer.default_local_dir).absolute()
    marker = folder / MARKER
    if config.trainer.resume_mode != "auto" or not marker.is_file():
        return
    identity = run_identity(settings, shape_of(config))
    refuse_other_run(folder / FOLDER, step=int(marker.read_text(encoding="utf-8")), identity=identity)


def _with_defaults(change: str) -> str:
    """A key of our section need not stand in the file to be changed: `read_section` knows which there are."""
    return f"++{change}" if change.startswith(f"{SECTION}.") else change


def set_environment(file: Path) -> None:
    """Give this process the variables that the config gives to Ray's workers; those that are set already stay."""
    try:
        told = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as cause:
        raise ConfigError(f"cannot read the config {file}: {cause}. Give the name of a file in configs.") from cause
    for part in ("ray_kwargs", "ray_init", "runtime_env", "env_vars"):
        told = told.get(part) or {} if isinstance(told, dict) else {}
    for name, value in told.items():
        os.environ.setdefault(str(name), str(value))
