"""What a person has written is read with one sentence for each failure."""

from pathlib import Path

import pytest
from pydantic import BaseModel, field_validator

from rubricem_env.domain.errors import ConfigError, FileFormatError
from rubricem_env.domain.inputs import (
    read_lines,
    read_prompt_texts,
    read_text,
    refuse_other_than_file,
    refuse_placeholders,
    validating,
)


def test_the_lines_that_are_not_blank_come_with_their_places(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": "one\u2028line"}\n\n{"a": 2}\n', encoding="utf-8")
    assert read_lines(path, "rows") == [(f"{path}, line 1", '{"a": "one\u2028line"}'), (f"{path}, line 3", '{"a": 2}')]


def test_a_file_that_is_not_there_or_is_no_text_is_refused_with_its_path(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "bytes"):
        with pytest.raises(FileFormatError, match=rf"cannot read .*{name}.*Give the path of questions\."):
            read_text(tmp_path / name, "questions")


def test_a_folder_in_a_files_place_is_refused_and_a_file_or_nothing_is_not(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    refuse_other_than_file(tmp_path / "file", "journal")
    refuse_other_than_file(tmp_path / "missing", "journal")
    with pytest.raises(FileFormatError, match=r"is a folder, a pipe or a device, and no journal\."):
        refuse_other_than_file(tmp_path, "journal")


def test_prompts_of_ones_own_are_read_whole_or_refused_with_what_to_copy(tmp_path):
    def read():
        return read_prompt_texts(tmp_path / "own", ("score", "propose"), shipped="/ours")

    with pytest.raises(ConfigError, match=r"no folder of prompts .*own\. Begin from a copy of /ours"):
        read()
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "score.md").write_text("Score it.")
    with pytest.raises(ConfigError, match=r"has no propose\.md; .*Copy what is missing from /ours"):
        read()
    (tmp_path / "own" / "propose.md").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"cannot read the prompt .*propose\.md: .*in UTF-8"):
        read()
    (tmp_path / "own" / "propose.md").write_text(" \n")
    with pytest.raises(ConfigError, match=r"propose\.md is empty; begin from the one in /ours"):
        read()
    (tmp_path / "own" / "propose.md").write_text("Propose.")
    assert read() == {"score": "Score it.", "propose": "Propose."}


def test_placeholders_are_ours_no_fewer_and_no_others():
    refuse_placeholders("it", ["question"], ["question"], sign="${}")
    with pytest.raises(ConfigError, match=r"it lacks the placeholder \$answer; put it where its value belongs"):
        refuse_placeholders("it", ["question"], ["question", "answer"], sign="${}")
    with pytest.raises(ConfigError, match=r"the unknown placeholder \$answr; those of ours are: none"):
        refuse_placeholders("it", ["answr"], [], sign="${}")


class Shelf(BaseModel):
    """pydantic raises UnicodeEncodeError where a validator quotes half of a character."""

    folder: Path

    @field_validator("folder")
    @classmethod
    def refuse(cls, folder: Path) -> Path:
        raise ValueError(f"{folder} has no pages")


def test_half_of_a_character_is_refused_by_its_escape():
    with (
        pytest.raises(ConfigError, match=r"the shelf is refused: it holds the broken character '\\ud800'\."),
        validating("the shelf is refused", error=ConfigError),
    ):
        Shelf.model_validate({"folder": "pages\ud800"})
