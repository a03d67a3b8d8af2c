"""What a run leaves on a disk that is full, or that is left in the middle of a line."""

import hashlib
import json
import pickle
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rubricem_agent.learn.checkpoint import checkpoint_steps, find_checkpoint, load_checkpoint
from rubricem_agent.learn.collapse import WatchSettings
from rubricem_agent.prompting import AGENT_PROMPTS, SHIPPED_PROMPTS
from rubricem_env.domain.errors import RubricEMError, UsageError
from rubricem_records.files.trimming import trim_log
from trainers.local.checkpoint import resume_run, save_run
from trainers.local.policy import save_policy
from trainers.local.run import make_run
from trainers.local.settings import LocalConfig


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """A file that would grow beyond so many bytes is refused by the system, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# 100 bytes are too few for any part, 5,000 for the curriculum, 50,000 for the weights.
@pytest.mark.parametrize("num_bytes", [100, 5_000, 50_000])
def test_a_full_disk_leaves_the_earlier_checkpoint_whole_and_nothing_else(config, num_bytes):
    run = make_run(config)
    save_run(run, 1)
    with room_for(num_bytes), pytest.raises(UsageError, match="Make room; the same command resumes"):
        save_run(run, 2)
    root = config.out / "checkpoints"
    assert [path.name for path in root.iterdir()] == ["step-000001"]
    assert load_checkpoint(find_checkpoint(root)).step == 1
    save_run(run, 2)
    assert checkpoint_steps(root) == [1, 2]


def test_a_full_disk_at_the_end_is_one_sentence_with_the_way_out(config):
    run = make_run(config)
    with room_for(50_000), pytest.raises(UsageError, match="the same command writes the policy"):
        save_policy(run.learner.policy, config)


def test_a_log_that_cannot_be_trimmed_is_still_there(tmp_path):
    log = tmp_path / "metrics.jsonl"
    written = "".join(f'{{"step": {step}, "a": 0}}\n' for step in range(1, 200))
    log.write_text(written)
    with room_for(1_000), pytest.raises(UsageError, match=r"File too large\. The steps after 150 .* the same command"):
        trim_log(log, 150)
    assert log.read_text() == written


@pytest.fixture(scope="module")
def saved(policy_folder, tmp_path_factory):
    """The components of a run, and its only checkpoint."""
    out = tmp_path_factory.mktemp("saved")
    fields = {"policy": policy_folder, "out": out, "questions_per_step": 1, "window": 1}
    run = make_run(LocalConfig.model_validate(fields, strict=False))
    next(run.curriculum)
    save_run(run, 1)
    return run, out / "checkpoints" / "step-000001"


def tamper(folder: Path, file: str, content: bytes) -> None:
    """Change a part, and its hash in the manifest, so that only the contents are wrong."""
    (folder / file).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    part = next(part for part in manifest["parts"].values() if part["file"] == file)
    part |= {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


FILES = ("bank.npz", "moments.safetensors", "weights.safetensors", *(
    f"{name}.json" for name in ("curriculum", "deferred", "judge", "learner", "progress")
))  # fmt: skip


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"{}", b"[" * 100_000, "{}".encode("utf-16"), pickle.dumps({})]
)
def test_a_part_with_other_contents_and_the_right_hash_is_one_sentence(saved, tmp_path, file, content):
    run, folder = saved
    copy = tmp_path / "checkpoints" / folder.name
    shutil.copytree(folder, copy)
    tamper(copy, file, content)
    with pytest.raises(RubricEMError) as refusal:
        resume_run(run._replace(config=run.config.model_copy(update={"out": tmp_path})))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        *(("learner.json", b"0", updates) for updates in (b'"x"', b"-1", b"1e400", b"0.5")),
        *(("curriculum.json", b'"step": 1', b'"step": ' + step) for step in (b"-7", b"1e400", b"2")),
        ("curriculum.json", b'"held": [', b'"held": [9999, '),
        ("deferred.json", b'"pending": []', b'"pending": [[1]]'),
        ("progress.json", b'"torch_rng": [', b'"torch_rng": [1.5, '),
    ],
)
def test_a_value_that_cannot_be_is_one_sentence(saved, tmp_path, file, before, after):
    run, folder = saved
    copy = tmp_path / "checkpoints" / folder.name
    shutil.copytree(folder, copy)
    assert before in (copy / file).read_bytes()
    tamper(copy, file, (copy / file).read_bytes().replace(before, after, 1))
    with pytest.raises(
        UsageError,
        match=r"delete that folder to start again|no run has saved|holds other questions|that a run has saved",
    ):
        resume_run(run._replace(config=run.config.model_copy(update={"out": tmp_path})))


def test_thresholds_are_no_part_of_a_runs_identity(tmp_path):
    config = LocalConfig(policy=Path("policy"), out=tmp_path)
    other = config.model_copy(update={"watch": WatchSettings(fewest_valid=None), "compare_gradients_every": 3})

    assert other.model_dump_json() == config.model_dump_json()


def test_a_checkpoint_names_the_hash_of_every_prompt_and_no_run_with_others_resumes_from_it(config, tmp_path):
    folder = tmp_path / "prompts"
    folder.mkdir()
    for name in AGENT_PROMPTS:
        (folder / f"{name}.md").write_text(SHIPPED_PROMPTS[name].text, encoding="utf-8")
    (folder / "inject_cross.md").write_text(f"{SHIPPED_PROMPTS['inject_cross'].text}\n", encoding="utf-8")
    own = config.model_copy(update={"prompts": folder})
    save_run(make_run(own), 0)

    manifest = json.loads((find_checkpoint(config.out / "checkpoints") / "manifest.json").read_text())
    whole = (folder / "inject_cross.md").read_bytes()
    assert manifest["prompts"]["inject_cross.md"] == hashlib.sha256(whole).hexdigest()[:16]
    assert {"agent.md", "reflection.md", "propose.md", "score.md", "reflect.md", "repair.md"} < {*manifest["prompts"]}

    assert resume_run(make_run(own)) == 0
    with pytest.raises(UsageError, match=r"was written with other prompts: inject_cross\.md\. Resuming would mix"):
        resume_run(make_run(config))
