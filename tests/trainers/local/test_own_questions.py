"""A user's own run: own questions, own documents in an index, a judge behind a server, and a model that is no Qwen3."""

import hashlib
import json
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.learn.checkpoint import checkpoint_steps
from rubricem_agent.policy.local import load_model, load_tokenizer
from rubricem_agent.prompting import AgentPrompt
from rubricem_agent.wiring import prepare
from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Query
from rubricem_env.judge.model.templates import PROPOSE, REFLECT
from rubricem_env.llm.chat import ChatRequest
from rubricem_env.testing import ModelRequest, ModelServer, serve_loopback
from rubricem_env.testing.tiny_model import tiny_tokenizer
from rubricem_records.runs.log_lines import EvaluationLine
from rubricem_viewer.record_reader import RunRecordReader
from tests.replies import read_blocks, read_fenced
from tests.shapes import tiny
from tests.trainers.local.test_killed import ROOT, Forked, curve, finish, wait_until
from trainers.cli.log_lines import describe_line
from trainers.local.run import make_run, read_run_questions
from trainers.local.settings import LocalConfig
from trainers.settings import read_settings

TOWERS = ("Aarburg", "Bregenz", "Colmar", "Dornach", "Eupen", "Feldkirch")
LESSON = '<call_tool name="google_search">tower of Colmar</call_tool><answer>The tower is 60 m tall.</answer>'
RUBRICS = [{"title": "Height", "description": "States the height with its unit.", "weight": 1}]
SYSTEM = "Search, then answer."
STEPS = 4


def judge_reply(request: ModelRequest) -> str:
    """Scores that depend on what is judged alone, so that a killed run gets the same again."""
    blocks = read_blocks(request.prompt)
    purpose = REFLECT if "CANDIDATES" in blocks else "score" if "CRITERIA" in blocks else PROPOSE

    def score(_: Mapping[str, Any], seen: Mapping[str, Any]) -> int:
        return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).digest()[0] % 3

    return read_fenced(score)(ChatRequest(request.prompt, purpose=purpose))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, ModelServer]]:
    """The folder of a person with questions, documents, an index, a Llama and a config; and the judge's server."""
    folder = tmp_path_factory.mktemp("own")
    for name, towers in (("training", TOWERS[:4]), ("held_out", TOWERS[4:])):
        rows = [{"question": f"How tall is the tower of {tower}?", "rubrics": RUBRICS} for tower in towers]
        (folder / f"{name}_rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        prepare(str(folder / f"{name}_rows.jsonl"), folder / f"{name}.jsonl")
    notes = folder / "notes"
    notes.mkdir()
    for height, tower in enumerate(TOWERS, 60):
        (notes / f"{tower}.md").write_text(f"# Tower of {tower}\n\nThe tower of {tower} is {height} m tall.\n")
    built = CliRunner().invoke(app, ["corpus", "build", str(notes), "-o", str(folder / "index")])
    assert built.exit_code == 0, built.output
    save_llama(folder / "llama")
    with serve_loopback(server := ModelServer(judge_reply)) as url:
        settings = {
            "policy": str(folder / "llama"),
            "data": str(folder / "training.jsonl"),
            "held_out_data": str(folder / "held_out.jsonl"),
            "tools": str(folder / "index"),
            "judge": {"judge": f"openai:judge@{url}/v1", "ask": {"retry": {"attempts": 2}}},
            "matrix": [[1.0, 0.0, 0.0, 0.5], [0.0, 1.0, 0.0, 0.5], [0.0, 0.0, 1.0, 0.5], [0.0, 0.0, 0.0, 1.0]],
            "out": str(folder / "run"),
            "steps": STEPS,
            "questions_per_step": 2,
            "group_size": 3,
            "window": 1,
            "learning_rate": 1e-3,
            "system": SYSTEM,
            "max_turn_tokens": 60,
            "rows": 4,
            "limits": {"max_calls": 1, "max_turns": 2, "max_tokens": 400},
            "reflection": {"num_candidates": 2, "total_tokens": 4_000, "new_tokens": 16, "system": "Reflect."},
            "evaluate_every": 4,
            "checkpoint_every": 2,
        }
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
        yield folder, server


def save_llama(folder: Path) -> None:
    """A Llama that has learnt one search and one answer by heart, and begins with either."""
    tokenizer = tiny_tokenizer([LESSON])
    model = tiny("llama", len(tokenizer))
    call, answer = LESSON.split("<answer>")
    openings = [AgentPrompt(SYSTEM, "").opening(Query(question=f"How tall is the tower of {one}?")) for one in TOWERS]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(240):
        opening = openings[step % len(openings)]
        chat = [{"role": "system", "content": opening.system}, {"role": "user", "content": opening.user}]
        prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        ids = torch.tensor([tokenizer(f"{prompt}{(call, f'<answer>{answer}')[step // 6 % 2]}<|im_end|>")["input_ids"]])
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Each leaf of nested JSON by its path."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        return {path: value}
    return {name: leaf for key, one in inner for name, leaf in flat(one, f"{path}/{key}").items()}


def test_a_killed_run_on_own_questions_goes_on_to_the_same_numbers_and_has_its_page(own):
    folder, server = own
    config, whole = folder / "config.yaml", folder / "whole"
    told = finish(Forked(config, whole))
    rows = curve(whole)
    assert [row["step"] for row in rows if "encounter" in row] == [1, 2, 3, 4], told
    trainer = Forked(config, folder / "parts")
    wait_until(lambda: checkpoint_steps(folder / "parts" / "checkpoints") or trainer.poll() is not None)
    trainer.send_signal(signal.SIGKILL)
    finish(trainer)
    told = finish(Forked(config, folder / "parts"))

    # Searches end when they end, so other rows are decoded together, and their sums differ in the last bits.
    assert flat(curve(folder / "parts")) == pytest.approx(flat(rows), abs=1e-5), told
    assert any(row.get("task") for row in rows), "a run that trains on nothing proves nothing"
    # Scored by the judge, and only where the questions have rubrics; nothing is known by truth.
    assert [(row["by"], [*row["held_out"]]) for row in rows if "held_out" in row] == [("judge", ["answer"])] * 2
    assert {json.dumps(row["true"]) for row in rows if "encounter" in row} == {"{}"}
    assert all(request.model == "judge" for request in server.asked)
    reader = RunRecordReader(whole)
    reader.refresh()
    rollouts = [reader.read_rollout(row) for row in range(len(reader.table.rows))]
    segments = [segment.text for one in rollouts for segment in one.rollout.trajectory.segments[1:]]
    assert any("The tower of Colmar is 62 m tall." in text for text in segments), "the index is searched"
    assert load_model(whole / "model").config.model_type == "llama"
    assert load_tokenizer(whole / "model").size == load_tokenizer(folder / "llama").size
    page = CliRunner().invoke(app, ["report", str(whole)])
    assert page.exit_code == 0, page.output


def test_the_command_says_who_scored_the_held_out_questions():
    line = EvaluationLine(step=1, held_out={"answer": 0.5}, valid=1.0, by="judge")
    assert describe_line(line, 4) == "step 1: held-out questions, by the judge: answer 0.50; 100% valid"


def test_lora_trains_beside_frozen_weights_and_ends_as_a_model_that_plays(own):
    folder, _ = own
    out = folder / "lora"
    told = finish(Forked(folder / "config.yaml", out, "lora={rank: 2}", "learning_rate=0.01", "steps=2"))
    assert any(row.get("task") for row in curve(out)), told
    before, after = load_model(folder / "llama").state_dict(), load_model(out / "model").state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert "model.layers.0.self_attn.q_proj.weight" in changed
    assert "model.embed_tokens.weight" not in changed
    assert json.loads((out / "adapter" / "adapter_config.json").read_text())["r"] == 2


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["held_out_judge={every: 1}"], r"held_out_judge and credit igpo need the truth"),
        (["credit=igpo"], r"held_out_judge and credit igpo need the truth"),
        (["tools=nowhere"], r"there are no tools 'nowhere'"),
        (["judge={dropout: 0.1}"], r"judge has the unknown key 'dropout'; did you mean settings\.dropout\?"),
    ],
)
def test_settings_that_own_questions_cannot_have_are_one_sentence(own, changes, sentence):
    with pytest.raises(ConfigError, match=sentence):
        read_settings(own[0] / "config.yaml", LocalConfig, changes=changes)


def test_the_config_of_the_page_is_read(own, tmp_path):
    page = (ROOT / "docs" / "howto" / "training.md").read_text()
    text = page.partition("```yaml\n")[2].partition("```")[0].replace("my_index", str(own[0] / "index"))
    (tmp_path / "own.yaml").write_text(text)
    config = read_settings(tmp_path / "own.yaml", LocalConfig)
    assert (config.judge.ceilings.tokens, config.lora.rank, config.tools.corpus) == (50_000_000, 16, own[0] / "index")


def test_a_held_out_question_that_is_trained_on_is_refused(own):
    config = read_settings(own[0] / "config.yaml", LocalConfig)
    with pytest.raises(ConfigError, match=r"4 questions of .*training\.jsonl are in .* too, such as 'How tall"):
        make_run(config.model_copy(update={"held_out_data": config.data}))


def test_an_episode_that_does_not_fit_into_the_cache_is_refused_with_the_numbers(own):
    config = read_settings(own[0] / "config.yaml", LocalConfig, changes=["limits={max_tokens: 3900}"])
    with pytest.raises(ConfigError, match=r"may have 4\d+ tokens .* reflection\.total_tokens 4000"):
        make_run(config)


def test_a_judge_that_is_not_there_ends_the_run_before_it_begins(own):
    folder, _ = own
    trainer = Forked(folder / "config.yaml", folder / "none", "judge.judge=openai:judge@http://127.0.0.1:9/v1")
    told = finish(trainer)
    assert trainer.returncode == 2
    assert "nothing was started: the judge judge at 127.0.0.1" in told.splitlines()[-1]
    assert not (folder / "none" / "metrics.jsonl").exists()


def test_the_almanacs_held_out_questions_are_of_the_split_that_is_named_and_none_is_trained_on():
    config = LocalConfig(policy=Path("p"), out=Path("o"))
    train, held_out, truth = read_run_questions(config)
    assert {truth[key].split for key in train} == {"train"}
    assert {truth[query.key].split for query in held_out} == {config.held_out}
    assert not {query.key for query in held_out} & train.keys()


@pytest.mark.parametrize(("limit", "kept"), [(0, []), (2, [0, 12]), (24, None), (1_000, None)])
def test_the_held_out_questions_of_an_evaluation_can_be_limited_and_lie_evenly_apart(limit, kept):
    whole = read_run_questions(LocalConfig(policy=Path("p"), out=Path("o")))[1]
    held_out = read_run_questions(LocalConfig(policy=Path("p"), out=Path("o"), held_out_limit=limit))[1]
    assert len(whole) == 24
    assert list(held_out) == [whole[index] for index in (range(24) if kept is None else kept)]
