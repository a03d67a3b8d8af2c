"""Starts a run whose trainer is one of the bench's: as trainers/verl_ssgrpo.py does, with another runner."""

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import ray
from omegaconf import OmegaConf, open_dict

from trainers.verl_backend.launch import read_config, set_environment

CONFIG = Path(__file__).parents[2] / "configs" / "verl_almanac_cpu.yaml"


def train(file: Path, changes: Sequence[str]) -> None:
    """Run to the end; Ray is shut down on the way out."""
    set_environment(file)
    config = read_config(file, changes)
    # Not before now: what veRL does when it is imported depends on the environment.
    loops = import_module("rubricem_trainers.verl_backend.actors").LOOPS_FILE
    run_ppo = import_module("verl.trainer.main_ppo").run_ppo
    with open_dict(config):
        config.actor_rollout_ref.rollout.agent.agent_loop_config_path = str(loops)
    OmegaConf.resolve(config)
    runner = import_module("verl_trainers").BenchRunner
    try:
        run_ppo(config, task_runner_class=ray.remote(num_cpus=1)(runner))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    train(CONFIG, sys.argv[1:])
