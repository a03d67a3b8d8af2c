"""A push shows what would be sent, sends nothing without --yes, and then exactly that; the hub is one on loopback."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from rubricem_agent.config.bank import BankConfig
from rubricem_agent.learn.code_version import code_version
from rubricem_agent.memory.snapshot import save_snapshot
from rubricem_agent.wiring.hub import plan_upload
from rubricem_agent.wiring.memory import build_bank
from rubricem_env.domain.errors import FileFormatError
from rubricem_env.testing.loopback import serve_loopback

ROOT = Path(__file__).parents[3]


class LoopbackHub:
    """The three calls of a push; it takes every file as a small one, and keeps what it was sent."""

    def __init__(self, *, token: str = "hf_of_tests") -> None:
        self.token = token
        self.made: list[dict[str, object]] = []
        self.commits: dict[str, dict[str, bytes]] = {}
        self.app = Starlette(
            routes=[
                Route("/api/repos/create", self._create, methods=["POST"]),
                Route("/api/{kind}/{owner}/{name}/preupload/main", self._preupload, methods=["POST"]),
                Route("/api/{kind}/{owner}/{name}/commit/main", self._commit, methods=["POST"]),
                Route("/api/validate-yaml", self._validate, methods=["POST"]),
            ]
        )

    def _is_refused(self, request: Request) -> bool:
        return request.headers.get("authorization") != f"Bearer {self.token}"

    async def _create(self, request: Request) -> JSONResponse:
        if self._is_refused(request):
            return JSONResponse({"error": "Invalid username or password."}, status_code=401)
        self.made.append(await request.json())
        return JSONResponse({"url": f"{request.base_url}{self.made[-1]['organization']}/{self.made[-1]['name']}"})

    async def _preupload(self, request: Request) -> JSONResponse:
        files = (await request.json())["files"]
        modes = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in files]
        return JSONResponse({"files": modes})

    async def _commit(self, request: Request) -> JSONResponse:
        rows = [json.loads(line) for line in (await request.body()).splitlines()]
        where = "{kind}/{owner}/{name}".format(**request.path_params)
        self.commits[where] = {
            row["value"]["path"]: base64.b64decode(row["value"]["content"]) for row in rows if row["key"] == "file"
        }
        made = f"{request.base_url}me/policy/commit/{'1' * 40}"
        return JSONResponse({"success": True, "commitUrl": made, "commitOid": "1" * 40})

    async def _validate(self, request: Request) -> JSONResponse:
        return JSONResponse({"errors": [], "warnings": []})


def push(url: str, *arguments: object, token: str = "hf_of_tests") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the hub's library reads its address when it is imported."""
    environ = {**os.environ, "HF_ENDPOINT": url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": token, "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "rubricem_agent.cli.main", "push", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environ, check=False, cwd=ROOT)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run with a model of a few bytes, and things beside it that nobody should publish."""
    folder = tmp_path / "run-7"
    (folder / "model").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "optimizer.pt", "notes.md"):
        (folder / "model" / name).write_text("{}")
    settings = {"policy": "/home/someone/models/Tiny-8B", "credit": "stages", "seed": 3}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "metrics.jsonl").write_text('{"step": 1}\n{"step": 12}\n')
    (folder / "code.txt").write_text("rubricem 0.1.0, commit abc\n")
    return folder


def test_without_yes_nothing_is_sent_and_with_it_what_was_shown(run: Path) -> None:
    pytest.importorskip("huggingface_hub")
    hub = LoopbackHub()
    with serve_loopback(hub.app) as url:
        shown = push(url, run / "model", "me/policy", "--json")
        assert (hub.made, hub.commits) == ([], {})
        refused = push(url, run / "model", "me/policy", "--yes", token="hf_wrong")
        sent = push(url, run / "model", "me/policy", "--yes", "--private")

    assert sent.returncode == 0, sent.stderr
    assert f"sent: {url}/me/policy/commit/1" in sent.stdout
    assert [(one["name"], one["organization"]) for one in hub.made] == [("policy", "me")]
    assert "private" in json.dumps(hub.made)
    files = hub.commits["models/me/policy"]
    assert sorted(files) == ["README.md", "config.json", "model.safetensors", "tokenizer.json"]
    assert files["README.md"].decode() == json.loads(shown.stdout)["card"]
    assert refused.returncode == 2
    assert "the hub did not take me/policy" in refused.stderr
    assert "hf_wrong" not in refused.stderr


def test_the_card_names_run_steps_settings_and_code_and_no_local_path(run: Path) -> None:
    card = bytes(plan_upload(run / "model")[1]["README.md"]).decode()

    assert "| run | run-7 |\n| steps | 12 |\n| code of the run | rubricem 0.1.0, commit abc |" in card
    assert "| policy | Tiny-8B |" in card
    assert f"| pushed by | {code_version()} |" in card
    assert str(run.parent) not in card
    assert "someone" not in card


def test_a_readme_of_the_models_own_stands_in_place_of_the_template(run: Path) -> None:
    (run / "model" / "README.md").write_text("# My model\n")

    card = bytes(plan_upload(run / "model")[1]["README.md"]).decode()

    assert card.startswith("# My model\n\n## Where it is from\n")


def test_the_bank_of_a_checkpoint_is_sent_as_the_lines_of_an_export(run: Path) -> None:
    bank = build_bank(BankConfig(embedder="hashing"))
    save_snapshot(bank, run / "bank.npz", step=12)

    kind, files = plan_upload(run / "bank.npz")

    assert kind == "rubric-bank"
    assert list(files) == ["README.md", "bank.jsonl"]
    assert b"| run | run-7 |" in bytes(files["README.md"])


def test_a_record_and_teacher_data_are_known_by_their_files(tmp_path: Path) -> None:
    for kind, names in {
        "trajectories": ("rollouts.jsonl.gz", "groups.jsonl.gz"),
        "samples": ("samples.jsonl",),
    }.items():
        folder = tmp_path / kind
        folder.mkdir()
        for name in (*names, "journal.jsonl"):
            (folder / name).write_text("{}\n")

        found, files = plan_upload(folder)

        assert (found, list(files)) == (kind, ["README.md", *names])


def test_a_whole_run_is_not_pushed_and_its_parts_are_named(run: Path) -> None:
    with pytest.raises(FileFormatError, match="name its part, such as RUN/model"):
        plan_upload(run)
