"""A checkpoint of another run is refused by the command itself, before Ray is started."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rubricem_agent.memory.bank import RubricBank
from rubricem_agent.memory.embed import HashingEmbedder
from rubricem_agent.memory.store import MemoryStore
from rubricem_env.domain.errors import UsageError
from rubricem_records.files.run_lock import lock_folder
from tests.lanes.verl.runs import LIMIT, SMALL, started
from trainers.settings import prompt_hashes
from trainers.verl_backend import launch
from trainers.verl_backend.checkpoint import FOLDER, identity_of, save_service
from trainers.verl_backend.launch import read_config
from trainers.verl_backend.saved_steps import MARKER
from trainers.verl_backend.settings import read_section

CPU = Path(__file__).parents[3] / "configs" / "verl_almanac_cpu.yaml"
IDENTITY_MATRIX = "[[1,0,0,0],[0,1,0,0],[0,0,1,0],[0,0,0,1]]"


@pytest.fixture
def saved(tmp_path):
    """The checkpoint of step 6 of a run with the config as it is."""
    settings = read_section({"almanac": {}, "bank": {"embedder": "hashing"}})
    bank = RubricBank(MemoryStore(embedder="hashing-512", dimension=512), HashingEmbedder())
    identity = {"identity": identity_of(config(tmp_path), settings)}
    prompts = prompt_hashes(settings, settings.judge)
    save_service(tmp_path / FOLDER, identity, bank=bank, step=6, prompts=prompts)
    (tmp_path / MARKER).write_text("6")
    (tmp_path / "global_step_6" / "actor").mkdir(parents=True)
    return tmp_path


def config(folder, *changes):
    return read_config(CPU, [f"trainer.default_local_dir={folder}", *changes])


def check_resume(composed):
    launch.check_resume(composed, read_section(OmegaConf.to_container(composed.rubricem, resolve=True)))


def test_the_same_settings_go_on_without_a_word(saved, capsys):
    check_resume(config(saved, "trainer.total_training_steps=99"))
    assert capsys.readouterr().err == ""


def test_another_number_of_ranks_resumes_and_is_announced_in_a_line(saved, capsys):
    check_resume(config(saved, "trainer.nnodes=3", "trainer.n_gpus_per_node=2"))
    line = capsys.readouterr().err
    assert line.startswith("verl_ssgrpo: step 6 was saved by 1 ranks and resumes on 6: weights and the optimiser's ")
    assert line.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ("rubricem.window=2", "rubricem.window"),
        (f"rubricem.matrix={IDENTITY_MATRIX}", "rubricem.matrix"),
        ("rubricem.credit=answer_only", "rubricem.credit"),
        ("data.train_batch_size=2", "data.train_batch_size"),
        ("actor_rollout_ref.rollout.n=8", "actor_rollout_ref.rollout.n"),
    ],
)
def test_other_settings_are_refused_by_name(saved, change, name):
    with pytest.raises(UsageError, match=f"written with {name}="):
        check_resume(config(saved, change))


def test_our_state_without_the_weights_is_refused_where_veRL_would_begin_anew(saved):
    shutil.rmtree(saved / "global_step_6")
    with pytest.raises(UsageError, match=r"names step 6, whose weights are gone.*begin anew.*global_step folder"):
        check_resume(config(saved))


def test_weights_without_our_state_are_refused(tmp_path):
    (tmp_path / "global_step_6" / "actor").mkdir(parents=True)
    (tmp_path / MARKER).write_text("6")
    with pytest.raises(UsageError, match="no checkpoint of step 6"):
        check_resume(config(tmp_path))


def test_a_run_that_is_told_to_begin_anew_looks_at_nothing(tmp_path):
    (tmp_path / MARKER).write_text("6")
    check_resume(config(tmp_path, "trainer.resume_mode=disable"))


def test_a_second_run_in_one_folder_is_refused_before_ray_is_started(policy, tmp_path):
    folder = tmp_path / "run"
    with closing(lock_folder(folder)), started(folder, policy, *SMALL) as second:
        assert second.wait(LIMIT) == 2, second.tail()
        assert second.sentences[-1].startswith(
            f"verl_ssgrpo: another process trains in {folder}: process {os.getpid()}; "
        )
        assert "choose another `trainer.default_local_dir`" in second.sentences[-1]
    assert not list(folder.glob("metrics.jsonl"))
