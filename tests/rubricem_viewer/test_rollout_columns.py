"""The table of a run is the same with the columns beside its index as without, also where either was changed."""

import json
import shutil

import numpy as np
import pytest

from rubricem_records.rollouts.rollout_columns import COLUMNS_FILE, pack_piece, read_pieces
from rubricem_records.rollouts.run_record import rollout_head
from rubricem_records.rollouts.run_recorder import RunRecorder
from rubricem_viewer.record_reader import RunRecordReader
from tests.rubricem_records.rollouts.test_run_recorder import attempt, careless, group, rollout

STEPS = (1, 2, 3)


def recorded(run, *steps, after=0):
    recorder = RunRecorder(run / "record")
    recorder.begin(after, embedder="hashing-512")
    for step in steps:
        recorder.record_step([(group(step), [rollout(step, 0, attempt()), rollout(step, 1, careless())])])


@pytest.fixture
def run(tmp_path):
    recorded(tmp_path / "run", *STEPS)
    return tmp_path / "run"


def index_of(run):
    return run / "record" / "rollouts.index.jsonl"


def columns_of(run):
    return run / "record" / COLUMNS_FILE


def table_of(run):
    reader = RunRecordReader(run)
    reader.refresh()
    return shown(reader)


def shown(reader):
    table = reader.table
    rows = [{name: np.asarray(row[name]).tolist() for name in row.dtype.names} for row in table.rows]
    return [json.dumps(row | {"ending": table.endings[row["ending"]]}) for row in rows], reader.damaged


def table_without_columns(run, tmp_path):
    plain = tmp_path / "plain"
    shutil.copytree(run, plain)
    columns_of(plain).unlink(missing_ok=True)
    return table_of(plain)


MARK = 1_000
"""Calls that are added to the rows of the columns, so that the table tells where its rows come from."""


def parsed_lines(run):
    """How many rows of the table do not come from the columns, and the table."""
    table = table_of(run)
    columns_of(run).write_bytes(changed(columns_of(run).read_bytes(), lambda rows: rows.__setitem__("calls", MARK)))
    reader = RunRecordReader(run)
    reader.refresh()
    return int((reader.table.rows["calls"] != MARK).sum()), table


def changed(content, change):
    """The pieces with a change of their rows."""
    pieces, end = read_pieces(content, 4)
    assert end == len(content)
    written = b""
    for piece, after in zip(pieces, [*(piece.begin for piece in pieces[1:]), end], strict=True):
        rows = piece.named.rows.copy()
        change(rows)
        written += content[piece.begin : after - rows.nbytes] + rows.tobytes()
    return written


def test_no_line_is_parsed_that_has_a_piece(run, tmp_path):
    expected = table_without_columns(run, tmp_path)
    assert parsed_lines(run) == (0, expected)


def test_a_line_that_was_changed_by_hand_counts_as_it_is_now(run, tmp_path):
    lines = index_of(run).read_text().splitlines(keepends=True)
    assert '"step":2' in lines[3]
    lines[3] = lines[3].replace('"calls":2', '"calls":7')
    index_of(run).write_text("".join(lines))

    expected = table_without_columns(run, tmp_path)
    parsed, table = parsed_lines(run)

    assert (parsed, table) == (2, expected)
    assert '"calls": 7' in table[0][2]


def test_a_line_that_has_become_longer_moves_the_others(run, tmp_path):
    index_of(run).write_text(index_of(run).read_text().replace('"calls":2', '"calls":12', 1))

    expected = table_without_columns(run, tmp_path)
    assert parsed_lines(run) == (6, expected)


@pytest.mark.parametrize("kept", [0, 1, 40, 300, -1])
def test_a_file_that_a_kill_has_cut_is_read_as_far_as_it_is_whole(run, tmp_path, kept):
    columns_of(run).write_bytes(columns_of(run).read_bytes()[:kept])

    assert table_of(run) == table_without_columns(run, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows["size"].__setitem__(0, -1),
        lambda rows: rows["at"].__setitem__(0, 2**60),
        lambda rows: rows["ending"].__setitem__(0, 9),
        lambda rows: rows["ending"].__setitem__(0, -1),
        lambda rows: rows["scores"].__setitem__((0, 1), np.inf),
        lambda rows: rows["valid"].view(np.uint8).__setitem__(0, 7),
    ],
)
def test_rows_that_no_line_could_have_are_passed_over(run, tmp_path, change):
    columns_of(run).write_bytes(changed(columns_of(run).read_bytes(), change))

    assert table_of(run) == table_without_columns(run, tmp_path)


@pytest.mark.parametrize("content", [b"", b"\n", b"{}\n", b"x" * 200_000, b"\xff\n" * 9, b'{"at":0,"size":0}\n'])
def test_a_file_of_something_else_is_passed_over(run, tmp_path, content):
    columns_of(run).write_bytes(content)

    assert table_of(run) == table_without_columns(run, tmp_path)


def test_rows_of_other_stages_than_the_record_are_passed_over(run, tmp_path):
    first = index_of(run).read_text().splitlines(keepends=True)[0]
    index_of(run).write_text(
        index_of(run).read_text().replace(first, json.dumps(json.loads(first) | {"stages": ["a", "b"]}) + "\n")
    )

    assert table_of(run) == table_without_columns(run, tmp_path) == ([], 6)


def test_a_resume_removes_the_pieces_of_what_is_done_again(run, tmp_path):
    reader = RunRecordReader(run)
    reader.refresh()
    recorded(run, 2, 3, 4, after=1)
    reader.refresh()

    assert shown(reader) == table_of(run) == table_without_columns(run, tmp_path)
    assert parsed_lines(run) == (0, shown(reader))
    assert [json.loads(row)["step"] for row in shown(reader)[0]] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_a_record_that_an_earlier_release_began_is_continued(run, tmp_path):
    columns_of(run).unlink()
    recorded(run, 4, after=3)

    expected = table_without_columns(run, tmp_path)
    assert parsed_lines(run) == (6, expected)


def test_a_reader_follows_both_files(run):
    reader = RunRecordReader(run)
    for step in (4, 5):
        reader.refresh()
        recorder = RunRecorder(run / "record")
        recorder.record_step([(group(step), [rollout(step, 0, attempt())])])
    reader.refresh()

    assert shown(reader) == table_of(run)


def test_a_piece_in_the_middle_of_lines_is_refused(run, tmp_path):
    content = index_of(run).read_bytes()
    start = content.find(b"\n") + 40
    head = rollout_head(rollout(1, 0, attempt()), 0, 9)
    columns_of(run).write_bytes(pack_piece([head], content[start : content.find(b"\n", start) + 1], start))

    assert table_of(run) == table_without_columns(run, tmp_path)
