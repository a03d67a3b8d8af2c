"""The columns of a run against the same rows in plain Python, and the index that they are read from."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from rubricem_env.domain.base import Stage
from rubricem_records.rollouts.rollout_columns import make_rows
from rubricem_records.rollouts.run_record import GroupHead, Header
from rubricem_viewer.filters import RolloutFilter
from rubricem_viewer.record_reader import RunRecordReader, ShownHead
from rubricem_viewer.rollout_table import RolloutTable

SCORE = st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0])
HEAD = st.builds(
    ShownHead,
    at=st.just(0),
    size=st.just(1),
    step=st.integers(1, 4),
    place=st.integers(0, 2),
    attempt=st.integers(0, 7),
    scores=st.tuples(SCORE, SCORE, SCORE, SCORE),
    true=st.just((None,) * 4),
    valid=st.booleans(),
    complete=st.booleans(),
    ending=st.sampled_from(["", "answered", "stalled"]),
    calls=st.integers(0, 9),
    tokens=st.integers(0, 9),
    violations=st.integers(0, 9),
)


def table_of(heads):
    table = RolloutTable(4)
    for start in range(0, len(heads), 50):
        part = heads[start : start + 50]
        columns = {name: [getattr(head, name) for head in part] for name in ShownHead.model_fields}
        rows = table.with_own_endings(make_rows(columns, 4))
        rows["group"] = rows["place"]
        table.rows = np.concatenate([table.rows, rows])
    return table


@given(
    st.lists(HEAD, max_size=140), st.integers(1, 4), st.sampled_from(["answered", "stalled", "never"]), st.booleans()
)
def test_a_filter_finds_the_rows_that_a_loop_finds(heads, step, ending, valid):
    wanted = RolloutFilter(step_from=step, ending=ending, valid=valid, stage=Stage.REVIEW, score_from=0.25, sort="best")

    found = table_of(heads).select(wanted, Stage.REVIEW.position).tolist()

    passing = [
        number
        for number, head in enumerate(heads)
        if head.step >= step and head.ending == ending and head.valid is valid and (head.scores[2] or 0) >= 0.25
    ]
    assert sorted(found) == passing
    scores = [heads[number].scores[2] for number in found]
    assert scores == sorted(scores, reverse=True)


def head(attempt, **more):
    fields = {"step": 1, "place": 0, "scores": (0.1, None, 1, 0.25), "true": (None,) * 4, "valid": True, **more}
    counts = {"calls": 3, "tokens": 18_000, "violations": 0, "complete": True, "ending": "answered"}
    return ShownHead(at=attempt * 10, size=9, attempt=attempt, **{**counts, **fields}).model_dump_json()


def write_index(run, kind, lines):
    folder = run / "record"
    folder.mkdir(exist_ok=True)
    (folder / f"{kind}.index.jsonl").write_text("".join(f"{one}\n" for one in ('{"record":2,"name":"a"}', *lines)))


def group(step):
    return GroupHead(at=0, size=1, step=step, place=0, query_key="k", question="?").model_dump_json()


def read(run):
    reader = RunRecordReader(run)
    reader.refresh()
    return reader


LINE = head(0)
LONG = "9" * 24


@pytest.mark.parametrize(
    "line",
    [
        json.dumps(json.loads(LINE)),
        LINE + "\r",
        "",
        f"{LINE},{LINE}",
        LINE[:-1],
        LINE[:-1] + ',"more":1}',
        f"x{LINE}",
        LINE.replace('"valid":true', '"valid":1'),
        LINE.replace(":18000", ":018000"),
        LINE.replace(":18000", ":18000.0"),
        LINE.replace(":18000", ":-1"),
        LINE.replace(":18000", ":9007199254740993"),
        LINE.replace(":18000", ":9007199254740992"),
        LINE.replace("[0.1,", "[0.1,0.1,"),
        LINE.replace("[0.1,", "["),
        *(LINE.replace("[0.1,", f"[{number},") for number in ("1e-05", "1e999", "NaN", "00.1", ".1", "1.", "-", "nul")),
        *(LINE.replace("[0.1,", f"[{number},") for number in ("-0.5", LONG, f"0.{LONG}{LONG}", "true", '"1"', "[]")),
        *(LINE.replace("answered", ending) for ending in ("a \\u00e9", "\\ud800", "é", 'a","x":"', "a\tb")),
    ],
)
def test_a_line_counts_among_others_where_it_counts_by_itself(tmp_path, line):
    try:
        expected = [ShownHead.model_validate_json(line, context=Header(record=2, name="a"))]
    except ValidationError:
        expected = []
    write_index(tmp_path, "groups", [group(1)])
    write_index(tmp_path, "rollouts", [head(1), line, head(2)])

    reader = read(tmp_path)

    assert reader.damaged == 1 - len(expected)
    assert reader.table.rows["attempt"].tolist() == [1, *(one.attempt for one in expected), 2]
    for row, one in zip(reader.table.rows[1:], expected, strict=False):
        np.testing.assert_array_equal(row["scores"], np.array(one.scores, dtype=np.float32))
        assert (row["tokens"], reader.table.endings[row["ending"]]) == (one.tokens, one.ending)


def test_a_thousand_rollouts_keep_their_numbers_and_wait_for_their_groups(tmp_path):
    heads = [head(n, step=1 + n // 8, scores=(n / 1_000, None, 1e-05 if n == 700 else 0, 1)) for n in range(1_000)]
    write_index(tmp_path, "rollouts", heads)
    write_index(tmp_path, "groups", [group(step) for step in range(1, 100)])
    reader = read(tmp_path)
    early = reader.table.rows["attempt"].tolist()
    with (tmp_path / "record" / "groups.index.jsonl").open("a") as file:
        file.write("".join(f"{group(step)}\n" for step in range(100, 126)))
    reader.refresh()
    rows = reader.table.rows

    assert (early, rows["attempt"].tolist()) == (list(range(792)), list(range(1_000)))
    assert rows["group"].tolist() == [n // 8 for n in range(1_000)]
    assert rows["scores"][:, 0].tolist() == [np.float32(n / 1_000) for n in range(1_000)]
    assert np.isnan(rows["scores"][:, 1]).all()
    assert rows["scores"][700, 2] == np.float32(1e-05)
