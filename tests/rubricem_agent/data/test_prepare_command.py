"""`rubricem data prepare`, as its user meets it."""

import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from rubricem_agent.cli.main import app
from rubricem_agent.data.question_files import read_question_file, read_training_set
from rubricem_agent.wiring.hub_files import choose_file, fetch_hub_file
from rubricem_agent.wiring.training_questions import prepare
from rubricem_env.domain.base import Stage
from rubricem_env.domain.errors import ConfigError, FileFormatError, MissingExtraError
from rubricem_env.domain.trajectory import AnswerFormat, Query
from rubricem_env.judge.rubrics.files import read_rubrics
from rubricem_env.world.almanac import shipped_questions_path

RUN = CliRunner()
RUBRIC = {"title": "COP", "description": "Explains the coefficient of performance.", "weight": 3.0}
TRAINABLE = Query(question="Why?", rubrics=read_rubrics(json.dumps([RUBRIC]), "here")).model_dump_json()


def written(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def asked(question: str, *rubrics: object) -> dict[str, object]:
    return {"question": question, "rubrics": list(rubrics or (RUBRIC,))}


def predecessors_row(question: str, rubrics: list[object]) -> dict[str, object]:
    """A row in the shape of rl-research/dr-tulu-rl-data, whose truth is JSON in a text."""
    return {
        "source": "rl_rag_train_sqa",
        "question_type": "short_form",
        "messages": [{"role": "user", "content": question}],
        "ground_truth": json.dumps({"query": question, "rubrics": rubrics}),
        "dataset": "general_rubric",
    }


def test_a_row_of_the_predecessor_becomes_a_query_with_persistent_answer_rubrics(tmp_path: Path) -> None:
    flaw = {"title": "Hype", "description": "Repeats marketing claims.", "weight": -1.5}
    nothing = {"title": "Nothing", "description": "Weighs nothing.", "weight": 0}
    source = written(tmp_path / "in.jsonl", predecessors_row("What limits heat pumps?", [RUBRIC, flaw, nothing]))

    prepare(str(source), tmp_path / "out.jsonl")
    (query,) = read_training_set(tmp_path / "out.jsonl")

    assert query.question == "What limits heat pumps?"
    assert query.answer_format is AnswerFormat.SHORT
    assert query.source == "rl_rag_train_sqa"
    assert [(rubric.polarity, rubric.weight) for rubric in query.rubrics] == [("positive", 3.0), ("negative", 1.5)]
    assert all(rubric.persistent and rubric.stage == Stage.ANSWER for rubric in query.rubrics)


def test_questions_that_are_evaluated_on_stay_out_whatever_their_case_and_punctuation(tmp_path: Path) -> None:
    questions = ("Why is the sky blue?", "Who wrote Ulysses?", "Why is the sea salty?")
    source = written(tmp_path / "in.jsonl", *map(asked, questions))
    evals = written(tmp_path / "evals.jsonl", {"prompt": "why IS the sky, blue"})
    benchmark = tmp_path / "simpleqa.csv"
    benchmark.write_text("metadata,problem,answer\n{},Who wrote Ulysses?,Joyce\n")

    found = prepare(str(source), tmp_path / "out.jsonl", evals=[str(evals), f"simpleqa={benchmark}"])

    assert found.left_out == {"is evaluated on": (1, 2)}
    assert [query.question for query in read_training_set(tmp_path / "out.jsonl")] == ["Why is the sea salty?"]


def test_the_almanacs_own_held_out_questions_never_get_in(tmp_path: Path) -> None:
    found = prepare(str(shipped_questions_path()), tmp_path / "out.jsonl")

    assert found.questions == 72
    assert len(found.left_out["is evaluated on"]) == 48


def test_a_file_of_evaluations_that_names_no_question_is_refused_with_its_row(tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", asked("Why?"))
    evals = written(tmp_path / "evals.jsonl", {"prompt": "why"}, {"text": "what"})

    with pytest.raises(FileFormatError, match=r"evals\.jsonl, row 2 names no question"):
        prepare(str(source), tmp_path / "out.jsonl", evals=[str(evals)])


def test_a_question_twice_without_rubrics_or_too_long_is_left_out_with_the_numbers_of_its_rows(tmp_path: Path) -> None:
    rows = [asked("Why?"), {"question": "How?"}, asked(" Why? "), asked("When? " * 2_000)]
    found = prepare(str(written(tmp_path / "in.jsonl", *rows)), tmp_path / "out.jsonl")

    assert found.left_out == {"has no rubrics": (2,), "stands there already": (3,), "has too long a question": (4,)}
    assert (found.rows, found.questions, found.rubrics) == (4, 1, 1)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("not json", "row 2: not JSON"),
        ([1], "row 2: it is a JSON list"),
        ({"rubrics": [RUBRIC]}, "row 2: it names no question"),
        ({"question": "a", "rubrics": 3}, "row 2: its rubrics are a JSON int"),
        (asked("a", {"description": "x", "weight": "much"}), "row 2: its list of rubrics, rubric 1: at weight"),
        (asked("a", {"description": "x", "stage": "plan"}), "row 2: one of its rubrics judges another stage"),
        ({**asked("a"), "answer_format": "poem"}, "row 2: its answer format is 'poem'"),
        ({"ground_truth": "{"}, "row 2: its ground_truth is not JSON"),
        ({"ground_truth": 7}, "row 2: its ground_truth is a JSON int"),
        ({"ground_truth": "[]"}, "row 2: its ground_truth holds a JSON list"),
        ({"question": "a", "truth": {}}, "row 2: it has a truth and is no question of the almanac"),
    ],
)
def test_a_broken_row_is_named_and_the_old_file_stays(row: object, said: str, tmp_path: Path) -> None:
    out = written(tmp_path / "out.jsonl", "the old one")
    source = str(written(tmp_path / "in.jsonl", asked("Why?"), row))

    with pytest.raises(FileFormatError) as told:
        prepare(source, out)

    assert said in str(told.value)
    assert out.read_text() == "the old one\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
    assert prepare(source, out, skips_broken=True).left_out == {"cannot be read": (2,)}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "has no rows"),
        ([asked("When? " * 2_000)], "1 has too long a question"),
        ([{"question": "Why?"}, {"question": "How?"}], "no row of the data set has rubrics in rubrics or rubric"),
    ],
)
def test_a_data_set_without_a_question_to_train_on_is_refused(rows: list[object], said: str, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=said):
        prepare(str(written(tmp_path / "in.jsonl", *rows)), tmp_path / "out.jsonl")


def test_the_data_set_itself_is_not_written_over(tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", asked("Why?"))

    with pytest.raises(ConfigError, match="is the data set itself"):
        prepare(str(source), source)


def test_a_json_array_is_read_as_rows_and_a_truncated_one_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text(json.dumps([asked("Why?"), asked("How?")]))
    assert prepare(str(source), tmp_path / "out.jsonl").questions == 2
    source.write_text("[1, ")
    with pytest.raises(FileFormatError, match="begins as a JSON array"):
        prepare(str(source), tmp_path / "out.jsonl")
    with pytest.raises(FileFormatError, match=r"cannot read the data set .*hf:OWNER/NAME"):
        prepare(str(tmp_path / "none.jsonl"), tmp_path / "out.jsonl")


def test_a_table_needs_its_package(tmp_path: Path) -> None:
    with pytest.raises((MissingExtraError, FileFormatError), match=r"pyarrow|cannot read the table"):
        prepare(str(tmp_path / "none.parquet"), tmp_path / "out.jsonl")


def test_the_only_file_for_training_is_chosen_on_the_hub() -> None:
    assert choose_file(["README.md", "data/rows.jsonl"], "hf:a/b") == "data/rows.jsonl"
    assert choose_file(["test.parquet", "train-00000.parquet"], "hf:a/b") == "train-00000.parquet"
    with pytest.raises(ConfigError, match=r"hf:a/b holds a\.jsonl, b\.jsonl"):
        choose_file(["a.jsonl", "b.jsonl"], "hf:a/b")
    with pytest.raises(ConfigError, match="holds no file"):
        choose_file(["README.md"], "hf:a/b")
    with pytest.raises(ConfigError, match="hf:OWNER/NAME"):
        fetch_hub_file("hf:rl-research")


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_the_command_says_what_became_of_the_rows(option: list[str], tmp_path: Path) -> None:
    source = written(tmp_path / "in.jsonl", asked("Why?"), {"question": "How?"}, "not json")
    arguments = ["data", "prepare", str(source), "-o", str(tmp_path / "out.jsonl"), "--skip-broken", *option]

    shown = RUN.invoke(app, arguments)

    assert shown.exit_code == 0
    if option:
        assert json.loads(shown.output)["left_out"] == {"has no rubrics": [2], "cannot be read": [3]}
    else:
        assert "1 questions of 3 rows" in shown.output
        assert "skipped 1 (2): the row has no rubrics" in shown.output
        assert "row 3: not JSON" in shown.output


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "holds no question"),
        (["{}"], "line 1 is no training question"),
        ([json.dumps({"question": "Why?"})], "has no persistent rubrics"),
        ([TRAINABLE, TRAINABLE], "line 2: the question stands there already"),
        (None, "cannot read .*Give the path of the questions. Make it with"),
    ],
)
def test_a_training_set_that_is_none_is_refused_with_the_way_out(
    lines: list[str] | None, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "set.jsonl"
    with pytest.raises(FileFormatError, match=said) as told:
        read_training_set(path if lines is None else written(path, *lines))
    assert "rubricem data prepare" in str(told.value)


def test_a_data_set_of_the_hub_is_fetched_by_the_one_file_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = written(tmp_path / "train.jsonl", asked("Why?"))
    fetched: list[tuple[object, ...]] = []

    def download(repository: str, file: str, *, repo_type: str, revision: str | None) -> str:
        fetched.append((repository, file, repo_type, revision))
        return str(kept)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", lambda *_, **__: ["README.md", "train.jsonl"])
    found = prepare("hf:rl-research/dr-tulu-rl-data@main", tmp_path / "out.jsonl")

    assert found.questions == 1
    assert fetched == [("rl-research/dr-tulu-rl-data", "train.jsonl", "dataset", "main")]


def test_a_hub_that_cannot_be_reached_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> list[str]:
        raise httpx.ConnectError("no network")

    monkeypatch.setattr("huggingface_hub.HfApi.list_repo_files", fails)
    with pytest.raises(FileFormatError, match=r"cannot be fetched \(ConnectError\). Without a network"):
        prepare("hf:rl-research/dr-tulu-rl-data", tmp_path / "out.jsonl")


def test_a_question_with_any_line_separator_of_unicode_is_read_as_it_was_written(tmp_path: Path) -> None:
    question = "What\u2028now,\x85or\x1cthen?"
    prepare(str(written(tmp_path / "in.jsonl", asked(question))), tmp_path / "out.jsonl")

    assert [query.question for query in read_training_set(tmp_path / "out.jsonl")] == [question]


def sft_row(question: str, question_type: str) -> dict[str, object]:
    """A row in the shape of rl-research/dr-tulu-sft-data: a whole trace in one message of the assistant."""
    trace = "<think>I search.</think><answer>Done.</answer>"
    roles = (("system", "You are a research assistant."), ("user", question), ("assistant", trace))
    messages = [{"role": role, "content": content} for role, content in roles]
    return {"id": 7, "messages": messages, "question_type": question_type, "source": "taskcraft", "num_tool_calls": 2}


def test_sft_rows_of_all_three_forms_become_questions_for_the_teacher(tmp_path: Path) -> None:
    forms = ("exact_answer", "short_form", "long_form")
    source = written(tmp_path / "sft.jsonl", *(sft_row(f"Question {form}?", form) for form in forms))
    out = tmp_path / "questions.jsonl"

    told = RUN.invoke(app, ["data", "prepare", str(source), "--for-teacher", "-o", str(out)])
    tasks, _ = read_question_file(out)

    assert told.output.startswith(f"3 questions of 3 rows in {out}, with 0 persistent rubrics")
    assert [(task.query.question, task.query.answer_format.value) for task in tasks] == [
        ("Question exact_answer?", "exact"),
        ("Question short_form?", "short"),
        ("Question long_form?", "long"),
    ]
    with pytest.raises(FileFormatError, match="With --for-teacher they become questions for `rubricem data teach`"):
        prepare(str(source), out)


def test_the_teacher_reads_what_prepare_writes_and_rows_with_fields_of_their_own(tmp_path: Path) -> None:
    prepare(str(written(tmp_path / "in.jsonl", asked("Why?"))), tmp_path / "out.jsonl")
    rows = written(tmp_path / "rows.jsonl", {**asked("Why?"), "difficulty": 3, "id": 12})

    (prepared,), _ = read_question_file(tmp_path / "out.jsonl")
    (task,), _ = read_question_file(rows)

    assert prepared.query == task.query
    assert task.id == "12"
