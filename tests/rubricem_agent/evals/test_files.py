import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rubricem_agent.evals.benchmarks import (
    deepsearchqa,
    drb,
    healthbench,
    researchqa,
    researchrubrics,
    simpleqa,
    twowiki,
    webwalkerqa,
)
from rubricem_agent.evals.dataset import DataPaths, Dataset
from rubricem_agent.evals.files import assemble, read_answers
from rubricem_env.domain.errors import FileFormatError

SAMPLES = Path(__file__).parents[2] / "samples" / "benchmarks"
ARTICLES = SAMPLES / "drb.raw_article.claude-3-7.jsonl"

Load = Callable[..., Dataset]

LOADERS = [
    pytest.param(healthbench.load, "healthbench.synthetic.jsonl", 8, id="healthbench"),
    pytest.param(researchqa.load, "researchqa.synthetic.json", 8, id="researchqa"),
    pytest.param(researchrubrics.load, "researchrubrics.synthetic.jsonl", 6, id="researchrubrics"),
    pytest.param(simpleqa.load, "simpleqa.synthetic.csv", 8, id="simpleqa"),
    pytest.param(deepsearchqa.load, "deepsearchqa.synthetic.csv", 8, id="deepsearchqa"),
    pytest.param(webwalkerqa.load, "webwalkerqa.synthetic.jsonl", 8, id="webwalkerqa"),
    pytest.param(twowiki.load, "twowiki.synthetic.json", 6, id="twowiki"),
    pytest.param(twowiki.load, "twowiki.drtulu_hf.synthetic.jsonl", 4, id="drtulu"),
]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def drb_files(tmp_path: Path) -> tuple[Path, Path]:
    """The first sample tasks that have criteria and an article, and the criteria."""
    criteria = SAMPLES / "drb.criteria.jsonl"
    known = {json.loads(line)["id"] for line in ARTICLES.read_text().splitlines()}
    lines = [line for line in (SAMPLES / "drb.query.jsonl").read_text().splitlines() if json.loads(line)["id"] in known]
    return write(tmp_path / "query.jsonl", "\n".join(lines)), criteria


@pytest.mark.parametrize(("load", "name", "rows"), LOADERS)
def test_a_sample_loads_with_its_hash_its_row_count_and_gold_for_every_example(
    load: Load, name: str, rows: int
) -> None:
    benchmark = load(DataPaths(SAMPLES / name), any_version=True)

    assert len(benchmark.examples) == rows
    assert len(benchmark.sha256) == 64
    assert [example.id for example in benchmark.examples] == list(benchmark.gold)


@pytest.mark.parametrize(("load", "name", "rows"), LOADERS)
def test_the_agent_is_given_an_id_and_a_prompt_and_nothing_else(load: Load, name: str, rows: int) -> None:
    for example in load(DataPaths(SAMPLES / name), any_version=True).examples:
        assert example.model_dump().keys() == {"id", "prompt_text", "turns"}
        assert example.prompt_text


@pytest.mark.parametrize(("load", "name", "rows"), LOADERS)
def test_an_empty_and_a_missing_file_are_refused_in_one_sentence(
    tmp_path: Path, load: Load, name: str, rows: int
) -> None:
    with pytest.raises(FileFormatError, match="is empty"):
        load(DataPaths(write(tmp_path / name, "\n")))
    with pytest.raises(FileFormatError, match="cannot be read"):
        load(DataPaths(tmp_path / "absent"))


@pytest.mark.parametrize(("load", "name", "rows"), LOADERS)
def test_text_of_another_format_is_refused_in_one_sentence(tmp_path: Path, load: Load, name: str, rows: int) -> None:
    with pytest.raises(FileFormatError, match="official"):
        load(DataPaths(write(tmp_path / name, "<html>not found</html>")), any_version=True)


def test_another_row_count_is_refused_with_both_numbers_and_the_way_out() -> None:
    with pytest.raises(FileFormatError, match=r"has 8 rows; the official file has 5000.*--any-version"):
        healthbench.load(DataPaths(SAMPLES / "healthbench.synthetic.jsonl"))


def test_another_hash_is_refused() -> None:
    with pytest.raises(FileFormatError, match="the official file has 00"):
        assemble(SAMPLES / "simpleqa.synthetic.csv", [], gold=[], sha256="00")


def test_a_conversation_is_rendered_with_roles_and_a_single_question_without() -> None:
    examples = healthbench.load(DataPaths(SAMPLES / "healthbench.synthetic.jsonl"), any_version=True).examples

    assert examples[0].prompt_text == "user: First turn.\n\nassistant: A reply.\n\nuser: Follow-up 0?"
    assert examples[1].prompt_text == "Invented health question 1?"


def test_the_readme_record_of_webwalker_is_another_version_and_says_which_fields_it_has() -> None:
    with pytest.raises(FileFormatError, match=r"line 1 is malformed: at question: field required \(got .*'Question'"):
        webwalkerqa.load(DataPaths(SAMPLES / "webwalkerqa.readme_example.jsonl"))


def test_a_missing_csv_column_is_named_with_what_is_there(tmp_path: Path) -> None:
    path = write(tmp_path / "old.csv", "problem,answer\nq,a\n")

    with pytest.raises(FileFormatError, match=r"lacks the column metadata.*this one problem, answer"):
        simpleqa.load(DataPaths(path))


def test_a_wrong_value_is_named_with_line_field_and_value(tmp_path: Path) -> None:
    row = json.loads((SAMPLES / "healthbench.synthetic.jsonl").read_text().splitlines()[0])
    row["rubrics"][1]["points"] = "seven"

    with pytest.raises(FileFormatError, match=r"line 1 is malformed: at rubrics\.1\.points.*'seven'"):
        healthbench.load(DataPaths(write(tmp_path / "bad.jsonl", json.dumps(row))))


def test_an_empty_question_or_answer_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "blank.csv", "metadata,problem,answer\n{},q,\n")

    with pytest.raises(FileFormatError, match=r"row 1 is malformed: at answer: .*got ''"):
        simpleqa.load(DataPaths(path), any_version=True)


def test_a_duplicate_id_is_refused(tmp_path: Path) -> None:
    line = (SAMPLES / "researchrubrics.synthetic.jsonl").read_text().splitlines()[0]

    with pytest.raises(FileFormatError, match="is given twice"):
        researchrubrics.load(DataPaths(write(tmp_path / "twice.jsonl", f"{line}\n{line}")), any_version=True)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "packed.jsonl"
    path.write_bytes(b"\x1f\x8b\xff\xff")

    with pytest.raises(FileFormatError, match=r"cannot be read .*as plain UTF-8"):
        healthbench.load(DataPaths(path))


def test_deepsearchqa_without_example_ids_is_numbered_from_zero(tmp_path: Path) -> None:
    text = "problem,problem_category,answer,answer_type\nq,c,a,Set Answer\n"

    assert [e.id for e in deepsearchqa.load(DataPaths(write(tmp_path / "n.csv", text)), any_version=True).examples] == [
        "0"
    ]


def test_a_bracketed_ground_truth_is_a_list_of_answers_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    gold = twowiki.load(DataPaths(SAMPLES / "twowiki.drtulu_hf.synthetic.jsonl"), any_version=True).gold
    broken = json.dumps({"messages": [{"role": "user", "content": "q"}], "ground_truth": "[x"})

    assert gold["1"].accepted_answers() == ("Ans A", "Ans B")
    with pytest.raises(FileFormatError, match="begins with a bracket"):
        twowiki.load(DataPaths(write(tmp_path / "b.jsonl", broken)))


def test_drb_tasks_load_with_their_criteria_and_language(tmp_path: Path) -> None:
    query, criteria = drb_files(tmp_path)

    benchmark = drb.load(DataPaths(query, criteria, ARTICLES), any_version=True)

    assert benchmark.gold["51"].language == "en"
    assert len(benchmark.gold["51"].criteria.criterions) == 4


def test_criteria_without_a_dimension_are_refused(tmp_path: Path) -> None:
    query, criteria = drb_files(tmp_path)
    task = json.loads(criteria.read_text().splitlines()[0])
    del task["criterions"]["insight"]

    with pytest.raises(FileFormatError, match="no weighted criteria for insight"):
        drb.load(DataPaths(query, write(tmp_path / "c.jsonl", json.dumps(task)), ARTICLES))


def test_articles_load_by_task_and_one_given_twice_is_refused(tmp_path: Path) -> None:
    path = ARTICLES

    assert len(read_answers(path)) == 2
    with pytest.raises(FileFormatError, match="already has an answer"):
        read_answers(write(tmp_path / "twice.jsonl", path.read_text() * 2))


def test_a_json_object_where_an_array_belongs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="not a JSON array with rows in it"):
        researchqa.load(DataPaths(write(tmp_path / "o.json", '{"data": []}')))


def test_a_csv_header_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="has a header and no rows"):
        simpleqa.load(DataPaths(write(tmp_path / "h.csv", "metadata,problem,answer\n")))


def test_criteria_given_twice_are_refused(tmp_path: Path) -> None:
    query, criteria = drb_files(tmp_path)

    with pytest.raises(FileFormatError, match="already has criteria"):
        drb.load(DataPaths(query, write(tmp_path / "c.jsonl", criteria.read_text() * 2), ARTICLES))


def test_a_row_of_twowiki_without_its_question_is_refused(tmp_path: Path) -> None:
    rows = json.loads((SAMPLES / "twowiki.synthetic.json").read_text())
    del rows[1]["question"]

    with pytest.raises(FileFormatError, match=r"element 1: the field question is missing"):
        twowiki.load(DataPaths(write(tmp_path / "bare.json", json.dumps(rows))))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            lambda task: {name: value for name, value in task.items() if name != "id"},
            "line 1: the field id is missing or no number",
        ),
        (lambda task: task | {"criterions": task["criterions"] | {"insight": []}}, "no weighted criteria for insight;"),
        (
            lambda task: task | {"dimension_weight": {"insight": 1.0}},
            "no weighted criteria for comprehensiveness, instruction_following, readability;",
        ),
    ],
)
def test_criteria_of_drb_that_lack_an_id_or_a_dimension_are_refused(tmp_path: Path, changed, said: str) -> None:
    query, criteria = drb_files(tmp_path)
    first, *others = criteria.read_text().splitlines()
    criteria = write(tmp_path / "criteria.jsonl", "\n".join([json.dumps(changed(json.loads(first))), *others]))

    with pytest.raises(FileFormatError, match=said):
        drb.load(DataPaths(query, criteria, ARTICLES), any_version=True)
