"""The folder with the Inspect extension, built as a package and run by Inspect's own command line."""

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed; run make adapter-inspect")

from inspect_ai import eval as run_inspect
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from docs.adapters.tutor import tutored_query
from rubricem_env.domain.base import STAGES
from tests.adapters.golden_group import GOLDEN, tutor

ROOT = Path(__file__).parents[3]
HUB = ROOT / "docs" / "hubs" / "inspect"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of the installed wheel: Inspect names a task by the package that it is installed in."""
    folder = tmp_path_factory.mktemp("inspect")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=HUB, timeout=100, check=True, capture_output=True)
    packages = folder / "site-packages"
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(packages)
    return packages


def evaluate(installed, monkeypatch, folder, begin):
    """One question, played through Inspect's registry; `begin(n)` gives the function that writes the nth attempt."""
    monkeypatch.syspath_prepend(str(installed))
    monkeypatch.setenv("INSPECT_DISPLAY", "none")
    writers = {}

    def reply(messages, tools, tool_choice, config):
        # A conversation is known by its second message, which all of its turns share.
        write = writers.setdefault(messages[1].id, begin(len(writers)) if messages[1].id not in writers else None)
        # With a usage of its own: Inspect would fetch a tokenizer to count.
        usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return ModelOutput.from_content("mockllm/model", write(messages[-1].text)).model_copy(update={"usage": usage})

    model = get_model("mockllm/model", custom_outputs=reply)
    key, options = tutored_query().key, {"log_dir": str(folder), "log_format": "json"}
    (log,) = run_inspect("rubricem/deep_research", model=model, sample_id=key, **options)
    assert (log.status, log.eval.task) == ("success", "rubricem/deep_research"), log.error
    return log, log.samples[0]


def test_four_attempts_get_the_golden_scores_and_the_task_their_means(installed, monkeypatch, tmp_path):
    log, sample = evaluate(installed, monkeypatch, tmp_path, tutor)
    scores = [[each[f"score_{stage!s}"] for stage in STAGES] for each in sample.metadata["attempts"]]
    rounded = [[round(score, 4) for score in row] for row in scores]
    assert sorted(rounded) == sorted([round(score, 4) for score in row] for row in GOLDEN["scores"])
    means = dict(zip((str(stage) for stage in STAGES), np.mean(GOLDEN["scores"], axis=0), strict=True))
    assert sample.scores["stages"].value == pytest.approx(means)
    assert {score.name: score.metrics["mean"].value for score in log.results.scores} == pytest.approx(means)
    assert sample.messages[0].role == "system"
    assert '<call_tool name="google_search">' in sample.messages[0].text


def test_a_model_that_writes_no_tags_ends_without_an_answer_and_gets_nothing_for_it(installed, monkeypatch, tmp_path):
    _, sample = evaluate(installed, monkeypatch, tmp_path, lambda number: lambda text: "I do not know.")
    assert {each["ending"] for each in sample.metadata["attempts"]} == {"stalled"}
    assert sample.scores["stages"].value["answer"] == 0
