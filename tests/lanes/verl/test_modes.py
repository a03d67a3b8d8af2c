"""The other modes compose over veRL's own, and what they cannot do is refused before anything is started."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.trainer_base import get_trainer_cls

from rubricem_agent.policy.base import model_folder
from rubricem_env.domain.errors import ConfigError
from trainers.verl_backend.launch import launch, read_config
from trainers.verl_backend.refusals import complete_config
from trainers.verl_backend.settings import SECTION, read_section
from trainers.verl_backend.trainer import MODES

CONFIGS = Path(__file__).parents[3] / "configs"
CPU = CONFIGS / "verl_almanac_cpu.yaml"
FULL = CONFIGS / "verl_rubricem_8b.yaml"
SEPARATE = (
    *("trainer.v1.trainer_mode=rubricem_separate", "trainer.nnodes=2", "actor_rollout_ref.rollout.nnodes=2"),
    *("actor_rollout_ref.rollout.n_gpus_per_node=8", "actor_rollout_ref.rollout.checkpoint_engine.backend=nccl"),
)
ONE_UPDATE = "trainer.v1.separate_async.parameter_sync_step=1"
SMALL_MODEL = f"actor_rollout_ref.model.path={model_folder(Path('tiny'))}"


def refuse(file, *changes):
    config = read_config(file, changes)
    settings = read_section(OmegaConf.to_container(config[SECTION], resolve=True))
    complete_config(config, settings)
    return config.trainer.v1


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
    with pytest.raises(ConfigError, match=r"parameter_sync_step=2 restores earlier weights.*Set it to 1"):
        refuse(CPU, "trainer.v1.trainer_mode=rubricem_separate", "trainer.v1.separate_async.parameter_sync_step=2")


def test_the_paper_s_recipe_composes_on_separate_gpus():
    refuse(FULL, *SEPARATE, ONE_UPDATE)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["trainer.v1.trainer_mode=rubricem_separate"], "samples on GPUs of its own.*nodes=0.*'naive'"),
        (list(SEPARATE), "parameter_sync_step=4 restores earlier weights.*param_offload=false"),
        (
            [*SEPARATE, "actor_rollout_ref.actor.fsdp_config.param_offload=false"],
            "parameter_sync_step=4 updates a step.*train_batch_size is 32, not their product",
        ),
    ],
)
def test_separate_gpus_without_what_they_need_are_refused(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        refuse(FULL, *changes)


def test_the_updates_of_a_step_on_separate_gpus_are_those_of_the_config():
    """The name of the mode is where veRL looks the number up, and where ours has nothing: it would take one."""
    changes = [*SEPARATE, SMALL_MODEL, "actor_rollout_ref.actor.ppo_mini_batch_size=8"]
    assert "rubricem_separate" in MODES
    assert get_trainer_cls("rubricem_separate")(read_config(FULL, changes)).parameter_sync_step == 4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["algorithm.use_kl_in_reward=true"], "algorithm.use_kl_in_reward is set"),
        (["trainer.test_freq=5"], "trainer.test_freq is set"),
        (["algorithm.adv_estimator=gae"], "adv_estimator is gae.*rubricem.credit"),
        (["actor_rollout_ref.actor.optim.lr_scheduler_type=cosine"], "a learning rate that changes.*=constant"),
        (["actor_rollout_ref.actor.optim.lr_warmup_steps=10"], "a learning rate that changes"),
        (["algorithm.rollout_correction.bypass_mode=true"], "the clipped ratio is the correction.*rollout_is"),
        (["actor_rollout_ref.rollout.calculate_log_probs=false"], "calculate_log_probs is false"),
        (["actor_rollout_ref.rollout.name=sglang"], "include_stop_str_in_output.*vllm or transformers"),
        (["actor_rollout_ref.actor.use_prefix_grouper=true"], "no engine of veRL 0.9.1 reads it. Remove the key"),
        (["actor_rollout_ref.actor.strategy=megatron"], "actor.strategy is megatron.*Set it to fsdp2"),
        (["actor_rollout_ref.actor.strategy=fsdp"], "actor.strategy is fsdp, .*Set it to fsdp2"),
        # two steps of 2,048 x 8 attempts, and 8 reflections of each question
        (["data.train_batch_size=2048"], "49152 requests run at once on 32 engines.*never pauses"),
    ],
)
def test_what_would_go_wrong_later_is_refused_at_the_start_in_a_sentence(changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        refuse(FULL, *changes)


@pytest.mark.parametrize(
    "changes",
    [
        ["rollout_is=sequence"],
        ["rollout_rs=seq_mean_k3", "rollout_rs_threshold=0.01"],
        ["rollout_is=null", "bypass_mode=true"],
    ],
)
def test_the_off_policy_correction_may_be_by_sequence_by_rejection_or_by_the_ratio_alone(changes):
    refuse(FULL, *(f"algorithm.rollout_correction.{change}" for change in changes))


@pytest.mark.parametrize(("window", "ahead"), [(1, 1), (2, 2.5)])
def test_a_window_in_which_repeats_are_played_before_their_reflections_is_refused(window, ahead):
    changes = (f"rubricem.window={window}", f"trainer.v1.colocate_async.num_warmup_batches={ahead}")
    with pytest.raises(ConfigError, match=f"would be repeated before.*at least {int(ahead) + 1}, or"):
        refuse(CPU, *changes)
    refuse(CPU, *changes, "rubricem.meta_policy=false")


@pytest.mark.parametrize(
    ("changes", "ahead", "updates"),
    [([], 1, 5), (["rubricem.ahead=2"], 2, 7), (["rubricem.ahead=2", "rubricem.max_age=3"], 2, 4)],
)
def test_steps_ahead_and_the_oldest_age_are_written_where_verl_reads_them(changes, ahead, updates):
    modes = refuse(FULL, *changes)
    # twice as old as usual, and 2 more; veRL counts the update itself
    assert modes.colocate_async.num_warmup_batches == ahead
    assert (modes.sampler.max_off_policy_threshold, modes.sampler.max_off_policy_strategy) == (updates, "drop")


def test_an_age_at_which_every_group_would_be_dropped_is_refused():
    with pytest.raises(ConfigError, match=r"max_age is 1, and 2 steps are sampled ahead.*at least 2"):
        refuse(FULL, "rubricem.ahead=2", "rubricem.max_age=1")
