import pytest

from rubricem_agent.evals.given_answers import GivenAnswers
from rubricem_env.domain.errors import FileFormatError, UsageError
from rubricem_records.evaluations.logs import AnswerRecord

IDS = "row numbers from 0"


def given(**answers: str) -> GivenAnswers:
    return GivenAnswers("file:a.jsonl", {name.lstrip("n"): answer for name, answer in answers.items()})


def record(example_id: str, answer: str, **fields: object) -> AnswerRecord:
    return AnswerRecord(benchmark="simpleqa", mode="official", id=example_id, epoch=0, given=answer, **fields)


def test_ids_that_count_from_one_are_refused_by_the_last_of_them():
    with pytest.raises(FileFormatError) as refusal:
        given(n1="a", n2="b").refuse_unknown(["0", "1"], ids=IDS)

    assert str(refusal.value) == (
        "file:a.jsonl has 1 of 2 answers to no example, the first to '2'; the ids of this benchmark are: row numbers "
        "from 0, here '0' to '1'. Correct the ids, or leave these lines out."
    )


def test_an_answer_that_is_gone_has_changed_as_well():
    with pytest.raises(UsageError, match="example 1 was b and is now not there"):
        given(n0="a").refuse_changed([record("0", "a"), record("1", "b")])


def test_a_failed_attempt_holds_nobody_to_its_answer():
    given(n0="a").refuse_changed([record("0", "", failure="no answer")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        ("yes", "line 1 is not JSON"),
        ('{"id": 1, "text": "yes"}', "at answer: field required"),
        ('{"id": 1, "answer": 5}', "at answer: .*got 5"),
    ],
)
def test_a_file_that_is_no_answers_file_is_refused_with_the_form_of_one(tmp_path, text, said):
    path = tmp_path / "a.jsonl"
    path.write_text(text)

    with pytest.raises(FileFormatError, match=said) as refusal:
        GivenAnswers.read(path)

    assert str(refusal.value).endswith('Write one line for each example: {"id": ..., "answer": ...}.')
