"""`rubricem data`, as its user meets it."""

import json
import resource
import signal
import sys
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from rubricem_agent.cli.data import data_app
from rubricem_agent.config.teacher import TeacherConfig
from rubricem_agent.data.base import RepliesPending, TeacherTask
from rubricem_agent.data.chatml import read_samples
from rubricem_agent.data.question_files import QuestionFile
from rubricem_agent.model_names import parse_teacher
from rubricem_agent.wiring.teacher_data import split_shards, teach
from rubricem_env.domain.errors import ConfigError, FileFormatError, UsageError
from rubricem_env.domain.trajectory import Query
from rubricem_env.llm.usage import SpendLimits
from rubricem_env.world.expert_faults import Faults

RUN = CliRunner()


def test_the_scripted_teacher_writes_samples_that_can_be_exported(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast
) -> None:
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    taught = RUN.invoke(data_app, ["teach", "--out", str(tmp_path / "run"), "--limit", "5"])
    options = ["--to", "trl", "--tokenizer", str(tmp_path / "tokenizer"), "--out", str(tmp_path / "trl")]
    exported = RUN.invoke(data_app, ["export", str(tmp_path / "run" / "samples.jsonl"), *options])
    samples = read_samples(tmp_path / "run" / "samples.jsonl")
    system, user, _ = samples[0].messages

    assert "5 traces: 5 accepted, 0 rejected" in taught.output
    assert len(samples) == 5
    assert "<structured_plan>" in system.content
    assert user.content.startswith("What is the depth of the river Calm Bridge?\n\n")
    assert "\\boxed" in user.content
    assert "5 rows in" in exported.output


def test_a_report_shows_whose_reasons_rejected_what(tmp_path: Path) -> None:
    mailbox, out = tmp_path / "box", tmp_path / "run"
    config = TeacherConfig(out=out, limit=2, teacher=f"directory:{mailbox}")
    with pytest.raises(RepliesPending):
        teach(config, {})
    replies = [{"id": "train-rivers-01.1", "text": "I know it."}, {"id": "train-rivers-02.1", "error": "refused"}]
    (mailbox / "replies-0001.jsonl").write_text("\n".join(json.dumps(reply) for reply in replies))
    teach(config, {})
    shown = RUN.invoke(data_app, ["report", str(out), "--json"])
    reasons = {reason["reason"]: reason["is_paper"] for reason in json.loads(shown.output)["reasons"]}

    assert reasons["no_tool_call"] is True
    assert reasons["teacher_failed"] is False
    assert "2 rejected, 1 of them for the paper's own reasons" in RUN.invoke(data_app, ["report", str(out)]).output


def test_a_dry_run_says_calls_and_money_and_sends_nothing() -> None:
    shown = RUN.invoke(data_app, ["dry-run", "--teacher", "gemini:gemini-3.1-pro-preview", "--limit", "10"]).output

    assert "10 questions" in shown
    # Five rounds are expected of each, ten are the most.
    assert "expected: 50 calls" in shown
    assert "at most: 100 calls" in shown
    # The two costs, and the price that they come from.
    assert [line.count("$") for line in shown.splitlines()] == [0, 2, 1, 1]
    assert "price of gemini-3.1-pro-preview: $2 read, $12 written for a million tokens (" in shown


def test_a_dry_run_counts_the_searches_at_the_price_of_the_dearer_tool(tmp_path: Path) -> None:
    tools = tmp_path / "tools.toml"
    tools.write_text('backend = "web"\n[google_search]\nengine = "serper"\nfee = 0.5')
    command = ["dry-run", "--limit", "3", "--tools", str(tools), "max_rounds=5"]
    # Of five rounds the last answers: 3 questions search 12 times.
    paid = json.loads(RUN.invoke(data_app, [*command, "--teacher", "gemini:m", "--price", "0,0", "--json"]).output)
    assert (paid["searches, at most"]["calls"], paid["searches, at most"]["dollars"]) == (12, 6.0)
    assert paid["at most"]["calls"] == 15
    told = RUN.invoke(data_app, [*command, "--teacher", "scripted"]).output
    assert "3 questions; the scripted teacher costs nothing.\nsearches, at most: 12 calls" in told
    assert "$6.00" in told
    tools.write_text('backend = "offline"')
    assert "searches" not in RUN.invoke(data_app, command).output


def test_a_teacher_that_costs_money_is_asked_only_after_a_yes(tmp_path: Path) -> None:
    said = RUN.invoke(data_app, ["teach", "--out", str(tmp_path / "run"), "--teacher", "gemini:m"], input="n\n")

    assert "price unknown" in said.output
    assert not (tmp_path / "run").exists()


def test_without_an_answer_to_the_question_of_cost_nothing_is_sent(tmp_path: Path) -> None:
    said = RUN.invoke(data_app, ["teach", "--out", str(tmp_path / "run"), "--teacher", "gemini:m"], input="")

    assert "add --yes" in str(said.exception)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "said"), [("flat=true", "flat was false and is true"), ("max_rounds=3", "10 and is 3")]
)
def test_a_folder_takes_traces_of_one_kind(change: str, said: str, tmp_path: Path) -> None:
    command = ["teach", "--out", str(tmp_path), "--limit", "2"]
    RUN.invoke(data_app, command)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    other = RUN.invoke(data_app, [*command, change])

    assert said in str(other.exception)
    assert "put the settings back, or use another folder" in str(other.exception)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    # What does not shape a trace may change: more questions, another number at once.
    assert "3 traces" in RUN.invoke(data_app, ["teach", "--out", str(tmp_path), "--limit", "3", "concurrency=2"]).output


def test_damaged_settings_of_a_folder_are_named_with_the_way_out(tmp_path: Path) -> None:
    command = ["teach", "--out", str(tmp_path), "--limit", "1"]
    RUN.invoke(data_app, command)
    (tmp_path / "config.json").write_text('{"flat": fal')
    other = RUN.invoke(data_app, command)

    assert isinstance(other.exception, FileFormatError)
    assert str(other.exception).startswith(f"{tmp_path} holds damaged settings: ")
    assert str(other.exception).endswith("Restore them, or use another folder for `out`.")


def test_flat_traces_get_the_flat_prompt_and_faults_are_the_configs(tmp_path: Path) -> None:
    faults = Faults(miss_convention=1.0)
    (_, sample) = teach(TeacherConfig(out=tmp_path, limit=2, flat=True, faults=faults), {}).samples

    assert "<review>" not in sample.messages[2].content
    assert "reporting convention" not in sample.messages[2].content


def test_shards_take_every_nth_question_and_their_share_of_the_ceilings(tmp_path: Path) -> None:
    config = TeacherConfig(out=tmp_path, shards=2, ceilings=SpendLimits(calls=11, dollars=5.0))
    tasks = [TeacherTask(str(number), Query(question="Why?")) for number in range(5)]
    shards = split_shards(config, QuestionFile(tasks, {}))

    assert [[task.id for task in tasks] for _, (tasks, _) in shards] == [["0", "2", "4"], ["1", "3"]]
    assert [part.ceilings for part, _ in shards] == [SpendLimits(calls=5, dollars=2.5)] * 2
    assert len({part.out for part, _ in shards}) == 2


def test_shards_without_ray_are_refused_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"writing in shards needs ray.*pip install 'ray>="):
        teach(TeacherConfig(out=tmp_path, shards=2), {})


@pytest.mark.parametrize("name", ["gemeni:x", "gemini", "openai:m", "scripted:x", "directory:", "openai:m@ftp://h"])
def test_a_teacher_of_unknown_form_is_refused_with_the_forms_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match="Use scripted, gemini:MODEL, gemini-batch:MODEL"):
        parse_teacher(name)


def test_a_model_teacher_without_its_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"the teacher gemini-batch:m at generativelanguage\.googleapis\.com needs a key; set .*GEMINI_API_KEY",
    ):
        teach(TeacherConfig(out=tmp_path, limit=1, teacher="gemini-batch:m"), {})


@pytest.mark.parametrize("room", [500, 20_000])
def test_a_full_disk_is_one_sentence_and_the_same_command_resumes(tmp_path: Path, room: int) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
    try:
        full = RUN.invoke(data_app, ["teach", "--out", str(tmp_path), "--limit", "2"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, heard)
    again = RUN.invoke(data_app, ["teach", "--out", str(tmp_path), "--limit", "2"])

    assert isinstance(full.exception, ConfigError)
    assert str(full.exception).startswith(f"cannot write to {tmp_path}")
    assert str(full.exception).endswith("Make room, then run the same command again to resume.")
    assert "2 traces: 2 accepted, 0 rejected" in again.output


def test_questions_of_ones_own_need_tools_and_a_folder_keeps_to_them(tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"id": "q1", "question": "Who was the first person on the Moon?"}) + "\n")
    model = ["--teacher", "openai:t@http://127.0.0.1:9/v1", "--questions", str(own)]
    for command in (["teach", "--yes", "--out", str(tmp_path / "run")], ["dry-run"]):
        refused = RUN.invoke(data_app, [*command, *model]).exception
        assert isinstance(refused, UsageError)
        assert f"the questions of {own} are about the real world, and no tools are named" in str(refused)
    said = RUN.invoke(data_app, ["dry-run", *model, "--tools", "web"])
    assert said.exit_code == 0, said.output

    taught = RUN.invoke(data_app, ["teach", "--out", str(tmp_path / "almanac"), "--limit", "1"])
    assert "Searches: almanac." in taught.output
    replay = tmp_path / "replay.toml"
    replay.write_text(f'replay = "{own}"\n')
    other = RUN.invoke(data_app, ["teach", "--out", str(tmp_path / "almanac"), "--limit", "1", "--tools", str(replay)])
    assert isinstance(other.exception, UsageError)
    assert "belongs to a run with other settings" in str(other.exception)
    assert "record (own.jsonl)" in str(other.exception)
