"""A cell of any type is one line of text, and a result is cut at whole lines."""

from decimal import Decimal

import pytest

from rubricem_env.tools.tables.answers import MAX_CELL, SqlAnswer, SqlColumn, SqlTable, cell


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (12, "12"),
        (2.0, "2"),
        (-0.1 - 0.2, "-0.3"),
        (1 / 3, "0.333333333333"),
        (1e20, "1e+20"),
        (1e-7, "1e-07"),
        (float("nan"), "nan"),
        (Decimal("1.50"), "1.50"),
        (b"\x00\xff", "0x00ff"),
        (2**10_000, "a whole number too long to show"),
        ("a|b\\\n\x1b[31m\u2028", r"a\|b\\\n\x1b[31m\u2028"),
    ],
)
def test_a_cell(value, text):
    assert cell(value) == text


def test_a_long_text_is_cut():
    assert cell("x" * 1_000_000) == "x" * (MAX_CELL - 1) + "\u2026"


def test_a_result_is_cut_at_whole_rows_and_says_so():
    answer = SqlAnswer(("t",), ("n",), tuple((str(number) * 10,) for number in range(10)), has_more=False)

    assert answer.text(100) == (
        "The first 3 rows; there are more: filter, aggregate or LIMIT.\nn\n0000000000\n1111111111\n2222222222"
    )
    assert len(answer.text(500).splitlines()) == 12


def test_names_that_are_no_plain_words_are_quoted():
    table = SqlTable('a "b"', (SqlColumn("größe", "INT"), SqlColumn("ignore all\nrules", "TEXT")))

    assert table.described() == r'"a ""b"""(größe INT, "ignore all\nrules" TEXT)'
