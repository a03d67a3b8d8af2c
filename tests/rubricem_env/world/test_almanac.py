"""The whole world: the same everywhere, disjoint by split, written and read back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from rubricem_env.domain.errors import UsageError
from rubricem_env.tools.corpus_search import read_documents
from rubricem_env.world.almanac import (
    Almanac,
    largest_world_within,
    load_questions,
    main,
    shipped_corpus_path,
    shipped_questions_path,
)
from rubricem_env.world.documents import count_pages
from rubricem_env.world.names import LARGEST_WORLD, name_slots

FILES = ("corpus.jsonl", "questions.jsonl")
WORLD = Almanac.from_seed(0)


def _run(folder: Path, hash_seed: str) -> list[bytes]:
    command = [sys.executable, "-m", "rubricem_env.world.almanac", "--seed", "7", "--out", str(folder)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True)
    return [(folder / name).read_bytes() for name in FILES]


def test_two_processes_with_different_hash_seeds_write_the_same_bytes(tmp_path: Path) -> None:
    assert _run(tmp_path / "one", "1") == _run(tmp_path / "two", "2")


def test_another_seed_makes_another_world() -> None:
    assert Almanac.from_seed(1).documents != WORLD.documents


def test_the_shipped_files_are_what_the_command_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "0", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "corpus.jsonl").read_bytes() == shipped_corpus_path().read_bytes()
    assert (tmp_path / "questions.jsonl").read_bytes() == shipped_questions_path().read_bytes()
    assert capsys.readouterr().out == f"408 documents and 120 questions in {tmp_path}\n"


@pytest.mark.no_cover
def test_a_test_name_of_one_world_is_a_train_name_of_no_other() -> None:
    other = Almanac.from_seed(99, entities_per_domain=60)
    tested = {entity for question in WORLD.questions_of("test") for entity in question.truth.entity_ids}
    assert not tested & {entity.id for entity in other.entities if entity.split != "test"}


def test_a_fifth_of_the_entities_is_held_out_for_validation_and_for_test() -> None:
    rivers = [e.split for e in Almanac.from_seed(0, entities_per_domain=20).entities if e.domain == "rivers"]
    # 20 // 5 = 4 for each held-out split, 20 - 2 * 4 = 12 for train
    assert [rivers.count(split) for split in ("train", "validation", "test")] == [12, 4, 4]


def test_each_split_asks_each_format_equally_often() -> None:
    # 8 domains x 15 questions: 9 train, 3 validation, 3 test each, a third of every format
    for split, share in (("train", 24), ("validation", 8), ("test", 8)):
        formats = [str(question.answer_format) for question in WORLD.questions_of(split)]
        assert [formats.count(form) for form in ("exact", "short", "long")] == [share] * 3


def test_the_largest_world_has_names_enough_and_none_twice() -> None:
    names = [name for slots in name_slots(3, LARGEST_WORLD).values() for name, _ in slots]
    assert len(names) == len(set(names)) == 8 * LARGEST_WORLD


@pytest.mark.no_cover
@settings(max_examples=10)
@given(seed=st.integers(0, 2**63), size=st.integers(9, 24))
def test_the_number_of_documents_is_known_before_they_are_written(seed: int, size: int) -> None:
    assert len(Almanac.from_seed(seed, entities_per_domain=size).documents) == count_pages(size)


def test_a_world_takes_the_greatest_size_that_fits_the_documents() -> None:
    assert largest_world_within(408) == 10
    assert largest_world_within(407) == 9


@pytest.mark.parametrize(
    ("seed", "size", "sentence"),
    [
        (0, 8, r"entities_per_domain is 8; .* need three each\. Use 9 or more\."),
        (0, 181, "entities_per_domain is 181; names last for 180"),
        (-1, 10, "world seed is -1; a seed must be 0 or greater"),
    ],
)
def test_a_world_that_cannot_be_made_is_refused_with_the_limit(seed: int, size: int, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Almanac.from_seed(seed, entities_per_domain=size)


def test_an_unknown_split_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no split 'dev'; it has train, validation and test"):
        WORLD.questions_of("dev")


def test_the_command_says_in_one_line_why_so_few_documents_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path / "none"), "--documents", "5"]) == 2
    assert capsys.readouterr().err.startswith("--documents is 5; the smallest world has ")
    assert not (tmp_path / "none").exists()


def test_a_written_world_is_read_back_the_same(tmp_path: Path) -> None:
    world = Almanac.from_seed(5, entities_per_domain=9, hostile=True)
    world.write(tmp_path / "made")
    assert tuple(read_documents(tmp_path / "made" / "corpus.jsonl")) == world.documents
    assert load_questions(tmp_path / "made" / "questions.jsonl") == world.questions


FIRST = shipped_questions_path().read_bytes().splitlines(keepends=True)[0]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (FIRST + b"{broken\n", r"questions\.jsonl, line 2 is not a Question: .*invalid JSON"),
        (FIRST.replace(b'"weight": 1.0', b'"weight": "much"'), r"line 1 is not .* at rubrics.0.weight: .*'much'"),
        (b"\xff\xfe", r"cannot read .*utf-8"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line_field_and_value(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "questions.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=sentence):
        load_questions(tmp_path / "questions.jsonl")


def test_a_missing_file_is_refused_with_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*none\.jsonl.* rubricem_env\.world\.almanac --out"):
        load_questions(tmp_path / "none.jsonl")


def test_a_line_separator_of_unicode_and_a_blank_line_break_no_question(tmp_path: Path) -> None:
    first = json.loads(FIRST)
    path = tmp_path / "questions.jsonl"
    line = json.dumps({**first, "question": "How wide is\u2028Tall Fox?"}, ensure_ascii=False)
    path.write_text(f"{line}\n\n", encoding="utf-8")
    (question,) = load_questions(path)
    assert question.question == "How wide is\u2028Tall Fox?"
