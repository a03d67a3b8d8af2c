"""The folders under docs/hubs that need nothing but our own environment to be checked."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rubricem_agent.data.chatml import ChatSample
from rubricem_env.domain.reflection import Reflection
from rubricem_records.files.packed_lines import read_packed

ROOT = Path(__file__).parents[1]
HUBS = ROOT / "docs" / "hubs"
SERVER = json.loads((HUBS / "mcp" / "server.json").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SCHEMA = os.environ.get("RUBRICEM_MCP_SCHEMA", "")
"""A download of the schema that `server.json` names; see docs/hubs/README.md."""


@pytest.mark.skipif(not SCHEMA, reason="RUBRICEM_MCP_SCHEMA does not name a download of the registry's schema")
def test_the_server_passes_the_schema_of_the_registry():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path(SCHEMA).read_text(encoding="utf-8"))
    assert schema["$id"] == SERVER["$schema"]
    assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(SERVER)] == []


def test_the_server_keeps_the_limits_of_the_registry():
    # The schema of 2025-12-11: a name has one slash, texts have at most 100 characters, a version is not a range.
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", SERVER["name"])
    assert 1 <= len(SERVER["description"]) <= 100
    assert 1 <= len(SERVER["title"]) <= 100
    for package in SERVER["packages"]:
        assert {"registryType", "identifier", "transport"} <= set(package)
        for argument in package["packageArguments"] + package["runtimeArguments"]:
            assert {"positional": "value", "named": "name"}[argument["type"]] in argument


def test_the_server_is_the_package_of_this_version():
    (package,) = SERVER["packages"]
    assert package["identifier"] == PROJECT["name"]
    assert SERVER["version"] == package["version"] == PROJECT["version"]
    (extra,) = package["runtimeArguments"]
    assert extra["value"] == f"{PROJECT['name']}[tools]=={PROJECT['version']}"


def test_the_readme_has_the_name_of_the_server():
    readme = (ROOT / PROJECT["readme"]).read_text(encoding="utf-8")
    assert re.findall(r"<!-- mcp-name: (\S+) -->", readme) == [SERVER["name"]]


def test_the_page_tells_who_the_placeholder_is_as_long_as_it_stands():
    page = (HUBS / "README.md").read_text(encoding="utf-8")
    assert ("**The placeholder.** `OWNER`" in page) == (SERVER["name"] == "io.github.OWNER/rubricem")


@pytest.mark.parametrize(("hub", "extra"), [("verifiers", "verifiers"), ("openenv", "openenv"), ("inspect", "eval")])
def test_a_package_for_a_hub_installs_this_version_with_its_extra(hub, extra):
    project = tomllib.loads((HUBS / hub / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (requirement,) = map(Requirement, project["dependencies"])
    assert (requirement.name, requirement.extras) == (PROJECT["name"], {extra})
    assert extra in PROJECT["optional-dependencies"]
    assert requirement.specifier.contains(PROJECT["version"])


def test_the_image_for_openreward_installs_this_version():
    listed = map(Requirement, (HUBS / "openreward" / "requirements.txt").read_text(encoding="utf-8").split())
    found = {requirement.name: requirement.specifier for requirement in listed}
    assert set(found) == {PROJECT["name"], "openreward"}
    assert found[PROJECT["name"]].contains(PROJECT["version"])


@pytest.mark.parametrize("name", ["rubric-bank", "trajectories", "samples"])
def test_the_parser_of_the_hub_reads_a_card(name):
    card = pytest.importorskip("huggingface_hub").DatasetCard.load(ROOT / "rubricem_agent" / "cards" / f"{name}.md")
    assert card.data.license == "apache-2.0"
    assert "rubricem" in card.data.tags
    assert card.data.pretty_name == card.text.split("\n# ", 1)[1].split("\n", 1)[0]


def test_the_card_of_a_model_leaves_its_license_to_the_base_model():
    card = pytest.importorskip("huggingface_hub").ModelCard.load(ROOT / "rubricem_agent" / "cards" / "model.md")
    assert (card.data.library_name, card.data.license) == ("transformers", None)


def test_the_card_of_samples_names_their_fields():
    assert fields_of("samples") == list(ChatSample.model_fields)


def test_the_card_of_a_bank_names_the_fields_of_a_reflection():
    assert fields_of("rubric-bank") == list(Reflection.model_fields)


def test_the_card_of_trajectories_names_the_files_of_a_record():
    record = ROOT / "tests" / "samples" / "viewer_run" / "record"
    assert fields_of("trajectories") == ["rollouts.jsonl.gz", "groups.jsonl.gz"]
    assert all((record / name).exists() for name in fields_of("trajectories"))
    rollout = json.loads(next(read_packed(record / "rollouts.jsonl.gz")))
    assert {"step", "place", "attempt", "rollout", "judged", "tokens", "returns", "advantages"} <= set(rollout)
    group = json.loads(next(read_packed(record / "groups.jsonl.gz")))
    assert {"step", "place", "rubrics", "active", "retired"} <= set(group)


def fields_of(name):
    """The first column of a card's table."""
    card = (ROOT / "rubricem_agent" / "cards" / f"{name}.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \|", card, re.MULTILINE)
