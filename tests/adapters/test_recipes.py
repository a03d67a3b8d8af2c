"""The recipes for libraries that are not run here fit the signatures that these have published.

`published/` holds the signatures that the recipes use, as stubs; `sources.json` says where each was read. That they
are what the packages hold is compared in a lane: make adapter-recipes.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PUBLISHED = Path(__file__).with_name("published")
RECIPES = sorted((ROOT / "docs" / "adapters" / "recipes").glob("*.py"))
MISTAKES = {
    "art_groups": ("reward=float(", "score=float("),
    "async_grpo": ("def update_model_version", "def set_model_version"),
    "nemo_gym": (
        "action: NeMoGymResponse, metadata: dict[str, Any], session_id",
        "action: NeMoGymResponse, session_id",
    ),
    "rllm_flow": ("response_ids=", "answer_ids="),
    "slime_hooks": ("sample.response_length =", "sample.length ="),
}


def check(files, cache):
    command = [sys.executable, "-m", "mypy", "--no-error-summary"]
    command += ["--config-file", str(PUBLISHED / "mypy.ini"), "--cache-dir", str(cache), *map(str, files)]
    environment = {"MYPYPATH": str(PUBLISHED), "PATH": ""}
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return shown.stdout + shown.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_every_recipe_is_tried_with_a_mistake():
    assert [recipe.stem for recipe in RECIPES] == sorted(MISTAKES)


def test_the_recipes_fit_the_published_signatures(cache):
    assert check(RECIPES, cache) == ""


def test_a_recipe_that_does_not_fit_is_found_out(cache, tmp_path):
    broken = []
    for recipe in RECIPES:
        right, wrong = MISTAKES[recipe.stem]
        text = recipe.read_text(encoding="utf-8")
        assert right in text
        broken.append(tmp_path / f"broken_{recipe.name}")
        broken[-1].write_text(text.replace(right, wrong), encoding="utf-8")
    found = check(broken, cache)
    assert [file.name for file in broken if f"{file.name}:" not in found] == []
