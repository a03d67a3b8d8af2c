"""RubricEM on veRL: SS-GRPO with the reflection meta-policy on Ray, FSDP and vLLM, from two CPU cores to nodes of GPUs.

    rubricem train-verl                              the paper's 8B recipe
    rubricem train-verl verl_almanac_cpu             the almanac on two cores, without vLLM
    rubricem train-verl NAME key=value ...           any file, or a config of the package, with changes
    rubricem train-verl --dry-run [--json]           memory, calls, money and hours of the run
    rubricem train-verl --preflight                  the packages, keys and files that are missing here

`python trainers/verl_ssgrpo.py --config-name NAME` is the same in a clone. It may be stopped at any time: the same
command resumes from its last checkpoint.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from rubricem_agent.yaml_config import find_config

from ..settings import run_command
from .planning.plan import print_plan
from .planning.preflight import require_ready

DEFAULT = "verl_rubricem_8b"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train. An error gives exit code 2 and one sentence on stderr, an interrupt 130."""
    # Intermixed: changes may stand before and after the options.
    chosen = _parser().parse_intermixed_args(arguments)
    file = find_config(Path(chosen.config_name))

    def run() -> None:
        if chosen.dry_run:
            print_plan(file, chosen.changes, assumptions=chosen.assume, as_json=chosen.json)
            return
        require_ready(file, chosen.changes, probe=not chosen.no_probe)
        if chosen.preflight:
            sys.stdout.write(f"{file.stem} has everything it needs on this machine\n")
            return
        # Hydra, Ray and veRL are imported only after the preflight has found them.
        import_module(f"{__package__}.launch").launch(file, chosen.changes)

    return run_command("verl_ssgrpo", run)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="verl_ssgrpo", description="Train on veRL.")
    parser.add_argument("--config-name", default=DEFAULT, metavar="NAME", help=f"or a file; default: {DEFAULT}")
    parser.add_argument("--dry-run", action="store_true", help="print memory, calls, money and hours; start nothing")
    parser.add_argument("--json", action="store_true", help="with --dry-run: print one JSON document")
    parser.add_argument(
        "--assume",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="with --dry-run: set an assumption; repeatable",
    )
    parser.add_argument("--preflight", action="store_true", help="list what is missing; start nothing")
    parser.add_argument(
        "--no-probe",
        action="store_true",
        help="do not ask judge and search engine for one token, nor measure the network",
    )
    parser.add_argument(
        "changes", nargs="*", metavar="KEY=VALUE", help="changes of the config: veRL's keys or rubricem's"
    )
    return parser
