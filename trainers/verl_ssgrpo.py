"""RubricEM on veRL: SS-GRPO with the reflection meta-policy on Ray, FSDP and vLLM, from two CPU cores to nodes of GPUs.

    python trainers/verl_ssgrpo.py                                          the paper's 8B recipe
    python trainers/verl_ssgrpo.py --config-name verl_almanac_cpu           the almanac on two cores, without vLLM
    python trainers/verl_ssgrpo.py --config-name NAME key=value ...         any file in configs, with changes
    python trainers/verl_ssgrpo.py --dry-run                                what the run would need

Stop it at any moment; started again it goes on from its last checkpoint.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rubricem_env.domain.errors import MissingExtraError, RubricEMError

CONFIGS = Path(__file__).parents[1] / "configs"
DEFAULT = "verl_rubricem_8b"
RUNNER = "trainers.verl_backend.runner"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train; 2 and one sentence on stderr for a mistake or a stopped run, 130 for an interrupt."""
    parser = argparse.ArgumentParser(prog="python trainers/verl_ssgrpo.py", description="Train on veRL.")
    parser.add_argument("--config-name", default=DEFAULT, metavar="NAME")
    parser.add_argument("--config-dir", type=Path, default=CONFIGS, metavar="FOLDER")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    chosen = parser.parse_args(arguments)
    try:
        train(chosen.config_dir / f"{chosen.config_name}.yaml", chosen.changes)
    except RubricEMError as mistake:
        sys.stderr.write(f"verl_ssgrpo: {mistake}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("verl_ssgrpo: stopped; the same command goes on from the last checkpoint\n")
        return 130
    return 0


def train(file: Path, changes: Sequence[str]) -> None:
    """Check, then import what is heavy, then train.

    Raises:
        MissingExtraError: veRL is not installed.
    """
    for package in ("verl", "ray", "hydra", "transfer_queue"):
        if find_spec(package) is None:
            raise MissingExtraError(package, "verl", "training on veRL")
    import_module(RUNNER).launch(file, changes)


if __name__ == "__main__":
    sys.exit(main())
