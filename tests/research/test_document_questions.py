import json

from research.document_questions import main, read_proposal

HEADER = """PEP: {number}
Title: {title}
Author: Ada Byron <ada@example.org>,
        Grace Hopper
Status: Final
Created: 12-Sep-2020
Python-Version: {version}

Abstract
========

Author: nobody
"""


def proposals(folder, *versions):
    for number, version in enumerate(versions, start=1):
        text = HEADER.format(number=number, title=f"Proposal\n  of {number}", version=version)
        (folder / f"pep-{number:04}.rst").write_text(text)
    return folder


def test_the_header_is_read_and_the_text_is_not(tmp_path):
    proposals(tmp_path, "3.10", "2.7, 3.2")

    assert read_proposal(tmp_path / "pep-0001.rst") == (1, "Proposal of 1", "Ada Byron", "2020", "3.10")
    assert read_proposal(tmp_path / "pep-0002.rst").version == "", "two versions are no one answer"


def test_each_kind_is_asked_as_often_and_names_its_source(tmp_path):
    out = tmp_path / "questions.jsonl"

    assert main([str(proposals(tmp_path, "3.10", "3.11", "3.12")), "--out", str(out), "--count", "4"]) == 0

    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"].rpartition("-")[2] for row in rows] == ["version", "version", "year", "author"]
    assert rows[2]["answer"] == ["2020"]
    assert all(row["id"].startswith(row["source"]) for row in rows)


def test_a_folder_with_too_few_is_refused(tmp_path, capsys):
    assert main([str(tmp_path), "--out", str(tmp_path / "out.jsonl")]) == 2

    assert "has 0 proposals with a version, and 100 are wanted" in capsys.readouterr().err
