"""The other modes compose over veRL's own, and what they cannot do is refused before anything is started."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.launch import launch, read_config
from trainers.verl_backend.settings import SECTION, read_section, refuse_impossible
from trainers.verl_backend.trainer import SeparateStageTrainer

CONFIGS = Path(__file__).parents[3] / "configs"
CPU = CONFIGS / "verl_almanac_cpu.yaml"
FULL = CONFIGS / "verl_rubricem_8b.yaml"
SEPARATE = (
    *("trainer.v1.trainer_mode=rubricem_separate", "trainer.nnodes=2", "actor_rollout_ref.rollout.nnodes=2"),
    *("actor_rollout_ref.rollout.n_gpus_per_node=8", "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl"),
)
ONE_UPDATE = "trainer.v1.separate_async.parameter_sync_step=1"
SMALL_MODEL = "actor_rollout_ref.model.path=rubricem_agent/policy/shipped/tiny"


def refuse(file, *changes):
    config = read_config(file, changes)
    refuse_impossible(config, read_section(OmegaConf.to_container(config[SECTION], resolve=True)))


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("verl_*.yaml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("mode", ["rubricem_async", "rubricem_sync"])
def test_every_config_may_be_run_in_the_modes_that_share_the_gpus(file, mode):
    refuse(file, f"trainer.v1.trainer_mode={mode}")


def test_a_cpu_of_its_own_for_sampling_needs_no_other_change():
    refuse(CPU, "trainer.v1.trainer_mode=rubricem_separate")


def test_a_transport_between_gpus_is_refused_on_a_cpu_by_the_command_itself():
    transport = "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl"
    with pytest.raises(ConfigError, match=r"takes no transport but 'ray'.*'nccl'.*checkpoint_engine.backend=ray"):
        launch(CPU, ["trainer.v1.trainer_mode=rubricem_separate", transport])


def test_several_updates_a_step_are_refused_on_a_cpu_where_the_weights_before_them_cannot_be_kept():
    with pytest.raises(ConfigError, match=r"one update a step, and .*parameter_sync_step is 2"):
        refuse(CPU, "trainer.v1.trainer_mode=rubricem_separate", "trainer.v1.separate_async.parameter_sync_step=2")


def test_a_file_is_no_cache_for_the_workers_of_several_nodes():
    cache = "rubricem.tools={backend: web, cache: {path: cache.sqlite}}"
    with pytest.raises(
        ConfigError, match=r"cache.sqlite is a SQLite file, and workers on 4 nodes.*rubricem tools serve"
    ):
        refuse(FULL, cache)
    refuse(FULL, cache, "trainer.nnodes=1")
    refuse(FULL, "rubricem.tools={remote: {url: 'http://head:8080/mcp'}, cache: {path: cache.sqlite}}")


def test_the_paper_s_recipe_composes_on_separate_gpus():
    refuse(FULL, *SEPARATE, ONE_UPDATE)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["trainer.v1.trainer_mode=rubricem_separate"], "samples on GPUs of its own.*nodes=0.*'naive'"),
        (list(SEPARATE), "parameter_sync_step=4 updates a step.*train_batch_size is 32, not their product"),
    ],
)
def test_separate_gpus_without_what_they_need_are_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        refuse(FULL, *changes)


def test_the_updates_of_a_step_on_separate_gpus_are_those_of_the_config():
    """The name of the mode is where veRL looks the number up, and where ours has nothing: it would take one."""
    changes = [*SEPARATE, SMALL_MODEL, "actor_rollout_ref.actor.ppo_mini_batch_size=8"]
    assert SeparateStageTrainer(read_config(FULL, changes)).parameter_sync_step == 4


@pytest.mark.parametrize(("window", "ahead"), [(1, 1), (2, 2.5)])
def test_a_window_in_which_repeats_are_played_before_their_reflections_is_refused(window, ahead):
    changes = (f"rubricem.window={window}", f"trainer.v1.colocate_async.num_warmup_batches={ahead}")
    with pytest.raises(ConfigError, match=f"would be repeated before.*at least {int(ahead) + 1}"):
        refuse(CPU, *changes)
    refuse(CPU, *changes, "rubricem.meta_policy=false")
