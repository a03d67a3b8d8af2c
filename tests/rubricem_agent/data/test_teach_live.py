"""A teacher behind a real HTTP server: from the command's settings to samples, with what was spent kept beside them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.command import INCOMPLETE
from rubricem_agent.cli.data import data_app
from rubricem_agent.config.teacher import TeacherConfig
from rubricem_agent.data.filter import read_report
from rubricem_agent.wiring.teacher_data import teach
from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.llm.usage import SpendLimitReached, SpendLimits
from rubricem_env.testing.loopback import serve_loopback
from rubricem_env.testing.servers import ModelReply, ModelServer
from tests.search_server import SearchReply, SearchServer

FIRST = (
    "<scratchpad>A look-up.</scratchpad><structured_plan><analysis>a</analysis><rubrics>b</rubrics>"
    "<research_plan>c</research_plan></structured_plan>"
    '<call_tool name="google_web_search">Calm Bridge depth</call_tool>'
)
LATER = (
    "<scratchpad>Enough.</scratchpad><state_evaluation>S_1 has it.</state_evaluation>"
    "<review><rubric_review>met</rubric_review><writing_plan>one value</writing_plan></review>"
    "<answer>\\boxed{12 m}</answer>"
)


def chat_server() -> ModelServer:
    """Writes a plan to the first prompt and an answer to any later one."""
    return ModelServer(lambda asked: LATER if "The work so far" in asked.prompt else FIRST)


def test_a_live_teachers_traces_become_canonical_samples_and_are_not_bought_twice(tmp_path: Path) -> None:
    server = chat_server()
    with serve_loopback(server) as url:
        config = TeacherConfig(out=tmp_path, probe=False, limit=2, teacher=f"openai:teacher@{url}")
        harvested = teach(config, {})
        again = teach(config, {})

    assert harvested.report.accepted == 2
    assert harvested.samples[0].messages[2].content.startswith("<think>A look-up.</think><structured_plan>")
    assert '<call_tool name="google_search">' in harvested.samples[0].messages[2].content
    assert again.samples == harvested.samples
    # Two traces of two turns.
    assert len(server.asked) == 4
    assert json.loads((tmp_path / "usage.json").read_text())["teacher"]["usage"]["calls"] == 4


def test_a_spend_limit_stops_the_run_and_what_is_paid_for_stays(tmp_path: Path) -> None:
    server = chat_server()
    with serve_loopback(server) as url:
        config = TeacherConfig(out=tmp_path, probe=False, limit=3, teacher=f"openai:teacher@{url}", concurrency=1)
        with pytest.raises(SpendLimitReached):
            teach(config.model_copy(update={"ceilings": SpendLimits(calls=3)}), {})
        harvested = teach(config, {})

    assert harvested.report.accepted == 3
    assert len(server.asked) == 6


def test_a_broken_account_of_what_was_spent_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "usage.json").write_text('{"calls": ')

    with pytest.raises(FileFormatError, match=r"usage\.json does not say what was spent.*Restore it"):
        teach(TeacherConfig(out=tmp_path, probe=False, limit=1), {})


def test_a_server_that_fails_rejects_no_trace_and_the_same_command_asks_again(tmp_path: Path) -> None:
    is_down = True
    server = ModelServer(
        lambda asked: (
            ModelReply("no such model", status=404)
            if is_down
            else (LATER if "The work so far" in asked.prompt else FIRST)
        )
    )
    with serve_loopback(server) as url:
        command = [
            "teach",
            "--out",
            str(tmp_path),
            "--teacher",
            f"openai:teacher@{url}",
            "--limit",
            "2",
            "--yes",
            "--no-probe",
        ]
        broken = CliRunner().invoke(data_app, command)
        report = read_report(tmp_path)
        is_down = False
        mended = CliRunner().invoke(data_app, command)

    assert broken.exit_code == INCOMPLETE
    assert (report.traces, report.rejected, report.failed) == (0, 0, 2)
    assert "2 questions failed at the teacher's server" in broken.output
    assert "no such model" in report.failure
    assert "Train on them" not in broken.output
    assert mended.exit_code == 0
    assert "2 traces: 2 accepted, 0 rejected" in mended.output


def test_a_limit_in_dollars_asks_for_the_price_of_a_model_that_has_none(tmp_path: Path) -> None:
    server = chat_server()
    with serve_loopback(server) as url:
        limited = ["teach", "--out", str(tmp_path), "--teacher", f"openai:teacher@{url}", "--limit", "3", "--yes"]
        limited += ["--no-probe", "--max-dollars", "0.03"]
        refused = CliRunner().invoke(data_app, limited)
        # At 1 dollar a million tokens, a turn of at most 8,192 tokens reserves 0.008 dollars and costs next to nothing.
        # Three turns run at once.
        done = CliRunner().invoke(data_app, [*limited, "--price", "0,1"])
        stopped = CliRunner().invoke(data_app, [*limited, "--out", str(tmp_path / "dear"), "--price", "0,1000"])

    said = str(refused.exception)
    assert isinstance(refused.exception, ConfigError)
    assert "no price of teacher is known, so --max-dollars cannot hold" in said
    assert "--price 2,12" in said
    assert "3 accepted" in done.output
    assert stopped.exit_code == 1
    assert len(server.asked) == 6


@pytest.mark.parametrize("price", ["2", "a,b", "1,2,3", "-1,2"])
def test_a_price_that_is_none_is_refused(price: str, tmp_path: Path) -> None:
    told = CliRunner().invoke(data_app, ["dry-run", "--teacher", "gemini:m", "--limit", "1", "--price", price])
    assert isinstance(told.exception, ConfigError)
    assert "price" in str(told.exception)


def test_replies_in_a_folder_have_no_cost_to_limit(tmp_path: Path) -> None:
    config = TeacherConfig(out=tmp_path, teacher=f"directory:{tmp_path}", ceilings=SpendLimits(dollars=1.0))
    with pytest.raises(ConfigError, match="replies in a folder come without their cost"):
        teach(config, {})


def batch_replies(*texts: str) -> list[SearchReply]:
    """A job that is created, and then done: one answer of 10 tokens read and 100 written for each text."""
    used = {"promptTokenCount": 10, "candidatesTokenCount": 100}
    answers = [
        {"response": {"candidates": [{"content": {"parts": [{"text": text}]}}], "usageMetadata": used}}
        for text in texts
    ]
    done = {"state": "BATCH_STATE_SUCCEEDED", "output": {"inlinedResponses": {"inlinedResponses": answers}}}
    created = SearchReply({"name": "batches/1", "metadata": {"state": "BATCH_STATE_PENDING"}})
    return [created, SearchReply({"name": "batches/1", "metadata": done})]


def test_batch_jobs_are_metered_at_half_the_list_price(tmp_path: Path) -> None:
    server = SearchServer(*batch_replies(FIRST, FIRST), *batch_replies(LATER, LATER))
    with serve_loopback(server.app) as url:
        config = TeacherConfig(out=tmp_path, probe=False, limit=2, teacher=f"gemini-batch:gemini-3.1-pro-preview@{url}")
        harvested = teach(config, {"GEMINI_API_KEY": "k"})

    assert harvested.report.accepted == 2
    spent = json.loads((tmp_path / "usage.json").read_text())["teacher"]
    assert spent["usage"]["calls"] == 4
    # 4 x (10 tokens at 1 dollar and 100 at 6 dollars a million).
    assert spent["dollars"] == pytest.approx(4 * (10 * 1 + 100 * 6) / 1e6)


def test_no_more_of_a_round_is_posted_than_the_limit_surely_pays_for(tmp_path: Path) -> None:
    jobs = [reply for text in (FIRST, FIRST, LATER, LATER) for reply in batch_replies(text)]
    server = SearchServer(*jobs)
    with serve_loopback(server.app) as url:
        # A turn may have 8,192 tokens at 1 dollar a million: one at a time is sure to stay below 0.012 dollars.
        config = TeacherConfig(
            out=tmp_path, probe=False, limit=2, teacher=f"gemini-batch:m@{url}", price=(0.0, 1.0)
        ).model_copy(update={"ceilings": SpendLimits(dollars=0.012)})
        harvested = teach(config, {"GEMINI_API_KEY": "k"})
        with pytest.raises(SpendLimitReached):
            teach(
                config.model_copy(update={"out": tmp_path / "b", "ceilings": SpendLimits(dollars=0.008)}),
                {"GEMINI_API_KEY": "k"},
            )

    assert harvested.report.accepted == 2
    assert len(list((tmp_path / "batches").glob("requests-*.jsonl"))) == 4
    # Nothing was sent where not one turn is sure to be paid for.
    assert len(server.requests) == len(jobs)


FLAT_FIRST = '<scratchpad>A look-up.</scratchpad><call_tool name="google_search">Calm Bridge depth</call_tool>'
FLAT_LATER = "<scratchpad>Enough.</scratchpad><answer>\\boxed{12 m}</answer>"


def test_a_flat_teacher_thinks_searches_and_answers_within_its_own_limits(tmp_path: Path) -> None:
    server = ModelServer(lambda asked: FLAT_LATER if "The work so far" in asked.prompt else FLAT_FIRST)
    with serve_loopback(server) as url:
        command = ["teach", "--out", str(tmp_path), "--teacher", f"openai:teacher@{url}", "--limit", "2", "--yes"]
        told = CliRunner().invoke(data_app, [*command, "--no-probe", "flat=true", "max_output_tokens=300"])

    assert "2 traces: 2 accepted, 0 rejected" in told.output
    (sample, _) = (json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines())
    assert sample["messages"][2]["content"].startswith("<think>A look-up.</think><call_tool")
    assert "structured_plan" not in sample["messages"][0]["content"]
    assert not any("structured_plan" in asked.system for asked in server.asked)
    assert {asked.body["max_tokens"] for asked in server.asked} == {300}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("flta=true", "the command has the unknown key 'flta'; did you mean 'flat'?"),
        ("teacher=x", "teacher is an option of this command; leave teacher=VALUE out."),
        ("max_rounds=none", "max_rounds: input should be a valid integer"),
    ],
)
def test_a_setting_that_is_none_is_refused(setting: str, said: str) -> None:
    told = CliRunner().invoke(data_app, ["dry-run", setting])
    assert said in str(told.exception)
