"""The files: what is written is read back, and a bad line is named."""

import json
from pathlib import Path

import pytest

from rubricem_env.tools.corpus_search import read_documents
from rubricem_env.world.almanac import Almanac, load_questions, shipped_corpus_path, shipped_questions_path
from rubricem_env.world.vocabulary import WorldError


def test_the_shipped_world_is_the_world_of_seed_0() -> None:
    world = Almanac.from_seed(0)
    assert tuple(read_documents(shipped_corpus_path())) == world.documents
    assert load_questions(shipped_questions_path()) == world.questions


def test_a_written_world_is_read_back_the_same(tmp_path: Path) -> None:
    world = Almanac.from_seed(5, entities_per_domain=9, hostile=True)
    world.write(tmp_path / "made")
    assert tuple(read_documents(tmp_path / "made" / "corpus.jsonl")) == world.documents
    assert load_questions(tmp_path / "made" / "questions.jsonl") == world.questions


def test_a_malformed_line_is_refused_with_its_file_and_number(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(shipped_questions_path().read_bytes().splitlines(keepends=True)[0] + b"{broken\n")
    with pytest.raises(WorldError, match=r"questions\.jsonl line 2 is not a Question: the line: Invalid JSON"):
        load_questions(path)


def test_a_line_with_a_wrong_field_is_refused_with_the_field_and_its_value(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(shipped_questions_path().read_bytes().replace(b'"weight": 1.0', b'"weight": "much"', 1))
    with pytest.raises(WorldError, match=r"line 1 is not a Question: rubrics.0.weight: .* got 'much'"):
        load_questions(path)


def test_a_missing_file_is_refused_with_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(WorldError, match=r"none\.jsonl cannot be read .* rubricem_env\.world\.almanac --out"):
        load_questions(tmp_path / "none.jsonl")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(WorldError, match="cannot be read as UTF-8 text"):
        load_questions(path)


def test_a_line_separator_of_unicode_and_a_blank_line_break_no_question(tmp_path: Path) -> None:
    first = json.loads(shipped_questions_path().read_text(encoding="utf-8").split("\n")[0])
    path = tmp_path / "questions.jsonl"
    line = json.dumps({**first, "question": "How wide is\u2028Tall Fox?"}, ensure_ascii=False)
    path.write_text(f"{line}\n\n", encoding="utf-8")
    (question,) = load_questions(path)
    assert question.question == "How wide is\u2028Tall Fox?"
