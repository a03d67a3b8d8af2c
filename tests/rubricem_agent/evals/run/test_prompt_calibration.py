"""Our judge prompts are held against the official ones: one judge, the same answers, two wordings."""

import asyncio
import json
import os
import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.evals.official_prompts import OfficialTemplate, Piece
from rubricem_agent.wiring.prompt_calibration import (
    PromptCalibration,
    WordingAgreement,
    compare_prompts,
    plan_calibration,
)
from rubricem_env.domain.errors import UsageError
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelRequest, ModelServer

# An invented text in the place of the official one, whose words are not in this repository.
WORDS = OfficialTemplate((Piece("Rate it: ", "question"), Piece(" should be ", "gold"), Piece("", None)), "f" * 64)


def differs(asked: ModelRequest) -> str:
    """In our words even questions are right; in the other words 4 and 6 alone, so that 0 and 2 differ."""
    number = int(re.search(r"question (\d)", asked.prompt)[1])
    if asked.prompt.startswith("Rate it"):
        return "A" if number in (4, 6) else "B"
    return "A" if number % 2 == 0 else "B"


@pytest.fixture
def judged(run, make_config, tmp_path):
    """A run of eight answers, and the settings of a calibration by a judge that differs in two of eight."""
    run(make_config("simpleqa", stage="answers"))
    silent = []
    app = ModelServer(lambda asked: "" if any(part in asked.prompt for part in silent) else differs(asked))
    with serve_loopback(app) as url:
        settings = make_config("simpleqa", policy="scripted", tools="", judges=(f"openai:m@{url}/v1",))

        def plan(**changes):
            config = settings.model_copy(update=changes)
            own, official = plan_calibration(config, tmp_path / "run", out=tmp_path / "out", prompts="")
            grader = replace(official.loaded.grader, official={"simpleqa": WORDS})
            manifest = official.manifest.model_copy(update={"prompt_hash": grader.prompt_hash, "prompts": "invented"})
            loaded = replace(official.loaded, grader=grader)
            return PromptCalibration(own, official._replace(loaded=loaded, manifest=manifest))

        yield plan, app, silent


def test_agreement_kappa_and_the_gap_of_scores_are_those_of_the_known_difference(judged):
    plan, app, _ = judged

    found = asyncio.run(compare_prompts(plan()))

    assert isinstance(found, WordingAgreement)
    assert (found.answers, found.verdicts, found.missing) == (8, 8, 0)
    assert found.same == 6 / 8
    # Own: half are A. Official: a quarter is. By chance 1/2 x 1/4 + 1/2 x 3/4 = 1/2 agree, so (3/4 - 1/2) / (1/2).
    assert found.kappa == pytest.approx(0.5)
    assert found.interval.low < 0.5 < found.interval.high
    assert found.scores.difference == pytest.approx(4 / 8 - 2 / 8)
    assert (found.scores.better, found.scores.worse) == (2, 0)
    assert len(app.asked) == 16

    assert asyncio.run(compare_prompts(plan())) == found
    assert len(app.asked) == 16, "a second command asks nothing again"


def test_an_outage_of_one_wording_is_missing_and_not_a_verdict(judged):
    plan, _, silent = judged
    silent.append("Rate it: Invented question 7")

    found = asyncio.run(compare_prompts(plan()))

    assert (found.answers, found.missing) == (7, 1)


def test_a_judge_that_is_away_is_told_in_a_sentence(judged):
    plan, _, silent = judged
    silent.append("question")

    assert "no answer was graded in both wordings: example 0" in asyncio.run(compare_prompts(plan()))


def test_another_number_of_answers_is_refused_in_the_same_folder(judged, tmp_path, make_config):
    asyncio.run(compare_prompts(judged[0]()))

    with pytest.raises(UsageError, match="a calibration on 8 answers; refusing to resume with 3"):
        plan_calibration(make_config("simpleqa"), tmp_path / "run", out=tmp_path / "out", prompts="", limit=3)


def test_runs_that_cannot_be_calibrated_are_refused(run, make_config, tmp_path):
    run(make_config("twowiki"))
    with pytest.raises(UsageError, match="asks no judge"):
        plan_calibration(make_config("twowiki"), tmp_path / "run", out=tmp_path / "out", prompts="")

    (tmp_path / "a.jsonl").write_text('{"id": 0, "answer": "yes"}\n')
    empty = make_config("simpleqa", policy=f"file:{tmp_path / 'a.jsonl'}", limit=1, out=tmp_path / "empty")
    run(empty)
    with pytest.raises(UsageError, match="has no answers"):
        plan_calibration(make_config("simpleqa"), tmp_path / "empty", out=tmp_path / "out", prompts="")


@pytest.fixture
def answered(run, make_config, tmp_path):
    run(make_config("simpleqa", stage="answers"))
    return str(tmp_path / "run")


def test_the_command_names_what_is_missing_of_the_official_prompts(answered, tmp_path):
    result = CliRunner().invoke(app, ["calibrate", answered, "--prompts", str(tmp_path), "--out", str(tmp_path / "o")])

    assert "has no simpleqa_eval.py" in str(result.exception)
    assert "neither a folder nor" in str(
        CliRunner().invoke(app, ["calibrate", answered, "--prompts", "no-such-place"]).exception
    )


def test_a_run_without_prompts_and_two_runs_of_one_name_are_refused(answered, tmp_path):
    assert "--prompts PLACE" in str(CliRunner().invoke(app, ["calibrate", answered]).exception)
    twice = CliRunner().invoke(app, ["calibrate", answered, answered, "--prompts", "x", "--out", str(tmp_path / "o")])
    assert "same name" in str(twice.exception)


@pytest.mark.skipif("RUBRICEM_OFFICIAL_PROMPTS" not in os.environ, reason="names no folder of official checkouts")
def test_the_command_calibrates_with_the_official_texts(answered, tmp_path):
    place = os.environ["RUBRICEM_OFFICIAL_PROMPTS"]
    shared = ["calibrate", answered, "--prompts", place, "--out", str(tmp_path / "o"), "--json"]
    estimate = json.loads(CliRunner().invoke(app, [*shared, "--dry-run"]).stdout)
    assert [row["usage"]["calls"] for row in estimate] == [8, 8]
    with serve_loopback(ModelServer(lambda asked: "A")) as url:
        result = CliRunner().invoke(app, [*shared, "--no-probe", "--judge", f"openai:m@{url}/v1"])

    (found,) = json.loads(result.stdout)
    assert (found["verdicts"], found["same"], found["kappa"]) == (8, 1.0, 1.0)
