"""What leaves the process: children get no keys that they do not need, and a push follows no links."""

import json
import os
from pathlib import Path

import pytest

from rubricem_agent.wiring.hub import plan_upload
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.llm.keys import without_keys
from trainers.process import Trainer, TrainerCommand, read_trainer_command

KEYS = {
    name: f"canary-{number}"
    for number, name in enumerate(
        (
            *("OPENAI_API_KEY", "GEMINI_API_KEY", "RUBRICEM_JUDGE_KEY", "SERPER_API_KEY", "HF_TOKEN", "WANDB_API_KEY"),
            *("AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "GITHUB_TOKEN", "MY_SECRET_VALUE", "NOTES_KEY"),
        )
    )
}
PLAIN = {"PATH": os.defpath, "HOME": "/root", "OMP_NUM_THREADS": "1", "RUBRICEM_JUDGE_KEY_HOST": "judge.example"}


@pytest.mark.parametrize(
    ("settings", "needed"),
    [
        ({}, set()),
        ({"judge": {"judge": "openai:m@https://judge.example/v1"}}, {"OPENAI_API_KEY", "RUBRICEM_JUDGE_KEY"}),
        ({"tools": "web"}, {"GEMINI_API_KEY", "SERPER_API_KEY"}),
        ({"tools": {"mounted": [{"name": "n", "command": "c", "environment": ["NOTES_KEY"]}]}}, {"NOTES_KEY"}),
    ],
)
def test_a_trainer_gets_the_keys_of_its_services_alone(tmp_path, settings, needed):
    pytest.importorskip("torch", reason="needs the extra 'local'")
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps({"policy": "tiny", "out": str(tmp_path / "out"), **settings}))
    got = without_keys({**KEYS, **PLAIN}, but=read_trainer_command(config, ()).keys)
    assert got.keys() >= {*PLAIN, *needed}
    assert not got.keys() & {"AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "GITHUB_TOKEN", "MY_SECRET_VALUE", "HF_TOKEN"}
    if not needed:
        assert got == PLAIN


def test_the_process_of_a_trainer_has_no_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shown").mkdir()
    module = tmp_path / "shown" / "shown_environment.py"
    module.write_text(f"import json, os; open({str(tmp_path / 'seen')!r}, 'w').write(json.dumps(dict(os.environ)))")
    command = TrainerCommand(tmp_path / "c.yaml", (), tmp_path / "out", 1, module="shown_environment")
    trainer = Trainer.start(command, {**KEYS, **PLAIN, "PYTHONPATH": str(tmp_path / "shown")})
    trainer.finish()
    seen = json.loads((tmp_path / "seen").read_text())
    assert not any("canary" in value for value in seen.values())


@pytest.mark.parametrize("linked", ["config.json", "README.md", "notes.txt"])
def test_a_push_follows_no_link_out_of_the_folder(tmp_path, linked):
    secret = tmp_path / "secret"
    secret.write_text("canary")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"x")
    (folder / linked).symlink_to(secret)
    with pytest.raises(FileFormatError, match="is a link"):
        plan_upload(folder)
    (folder / linked).unlink()
    (folder / linked).write_text("{}")
    assert "model.safetensors" in plan_upload(folder)[1]


def test_every_action_of_the_workflows_is_pinned_by_commit():
    folder = Path(__file__).parents[2] / ".github" / "workflows"
    text = "".join(path.read_text() for path in folder.iterdir())
    uses = [line.partition("uses:")[2].split()[0] for line in text.splitlines() if "uses:" in line]
    assert uses
    assert all(len(one.partition("@")[2]) == 40 for one in uses)
