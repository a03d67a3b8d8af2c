"""One query gives the same text by DuckDB over files and by SQLite; what is wrong is one sentence."""

import asyncio
import os

import pytest

from rubricem_env.domain.errors import ConfigError
from rubricem_env.domain.trajectory import Snippet, ToolCall, ToolStatus
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.tables.run_sql import RunSql

PLACES = ("folder", "database")
TOTALS = "SELECT city, sum(amount) AS total FROM sales JOIN shops ON sales.shop = shops.id GROUP BY city ORDER BY city"


@pytest.fixture(params=PLACES)
def place(request):
    if request.param == "folder":
        pytest.importorskip("duckdb")
    return request.getfixturevalue(request.param)


@pytest.fixture
def tool(place):
    opened = RunSql.open(place, processes=1, rows=3)
    yield opened
    asyncio.run(opened.aclose())


def run(tool, query):
    result, _ = asyncio.run(tool.answer(ToolCall(name="run_sql", query=query)))
    (snippet,) = result.snippets
    return snippet


def problem(tool, query):
    with pytest.raises(ToolFailure) as failure:
        run(tool, query)
    return failure.value


def test_a_result_says_how_many_rows_then_the_columns_then_the_rows_and_names_the_tables(tool):
    # 2.5 + 3.0 in Oslo, 4.25 in Rome.
    assert run(tool, TOTALS) == Snippet(
        text="2 rows.\ncity | total\nOslo | 5.5\nRome | 4.25", title="run_sql on sales, shops"
    )


def test_the_same_query_gives_the_same_bytes_again(tool):
    assert run(tool, TOTALS) == run(tool, TOTALS)


def test_more_rows_than_are_shown_are_said(tool):
    shown = run(tool, "SELECT s.id FROM sales s, sales t ORDER BY s.id").text

    assert shown == "The first 3 rows; there are more: filter, aggregate or LIMIT.\nid\n1\n1\n1"


def test_nothing_found_is_a_result(tool):
    assert run(tool, "SELECT name FROM shops WHERE city = 'Bern'").text == "0 rows.\nname"


def test_a_result_without_a_table_says_so(tool):
    assert run(tool, "SELECT 42 AS x") == Snippet(text="1 row.\nx\n42", title="run_sql on no table")


def test_a_table_that_the_query_defines_itself_is_none(tool):
    assert run(tool, "WITH sales AS (SELECT 42 AS x) SELECT x FROM sales").title == "run_sql on no table"


def test_the_tables_and_their_columns_are_listed(tool):
    described = run(tool, "SHOW TABLES;").text

    assert [line.partition("(")[0] for line in described.splitlines()] == ["sales", "shops"]
    assert run(tool, "describe SALES").text == described.splitlines()[0]
    assert tool.spec.description.endswith(described)


def test_a_query_between_the_fences_of_markdown_is_run(tool):
    assert run(tool, "```sql\nSELECT 42 AS x;\n```").text == "1 row.\nx\n42"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT x FROM nowhere", "nowhere"),
        ("DESCRIBE nowhere", "there is no table 'nowhere'; the tables are sales, shops."),
        ("SELECT price FROM sales", "price"),
        ("SELECT FROM WHERE", "syntax error"),
        ("  ; ", "no statement"),
    ],
)
def test_a_wrong_query_is_an_error_in_one_sentence(tool, query, words):
    failure = problem(tool, query)

    assert failure.status is ToolStatus.ERROR
    assert words in str(failure)
    assert str(failure).endswith(".")
    assert "\n" not in str(failure)


def test_values_of_every_kind_are_one_line_each(tool):
    shown = run(
        tool,
        "SELECT NULL AS a, 'x|y' || char(10) || 'z' AS b, 0.1 + 0.2 AS c, 1e300 AS d, '目' AS e".replace(
            "char(10)", "chr(10)" if "DuckDB" in tool.spec.description else "char(10)"
        ),
    )

    assert shown.text.splitlines()[2] == r"NULL | x\|y\nz | 0.3 | 1e+300 | 目"


def test_a_file_that_changes_is_read_as_it_is_then(folder):
    pytest.importorskip("duckdb")
    tool = RunSql.open(folder, processes=1)
    before = tool.state
    with (folder / "shops.csv").open("a", encoding="utf-8") as shops:
        shops.write("3,West,Bern\n")

    assert run(tool, "SELECT count(*) AS n FROM shops").text == "1 row.\nn\n3"
    again = RunSql.open(folder, processes=1)
    assert again.state != before
    for opened in (tool, again):
        asyncio.run(opened.aclose())


def test_parquet_files_and_columns_in_other_scripts_are_tables(folder):
    duckdb = pytest.importorskip("duckdb")
    duckdb.sql('SELECT 7 AS "größe", \'東京\' AS "場所"').write_parquet(str(folder / "orte.parquet"))
    tool = RunSql.open(folder, processes=1)

    assert run(tool, 'SELECT "場所", größe FROM orte').text == "1 row.\n場所 | größe\n東京 | 7"
    asyncio.run(tool.aclose())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"n\n" + "é".encode("latin-1"), "cannot be read as a table"),
        (b"PAR1 and no more", "cannot be read as a table"),
    ],
)
def test_a_file_that_is_no_table_is_named_when_the_tool_is_opened(folder, content, words):
    pytest.importorskip("duckdb")
    (folder / ("odd.parquet" if content.startswith(b"PAR1") else "odd.csv")).write_bytes(content)

    with pytest.raises(ConfigError, match=words) as refusal:
        RunSql.open(folder, processes=1)
    assert "odd." in str(refusal.value)


def test_a_damaged_sqlite_file_is_named_when_the_tool_is_opened(database):
    with database.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(3_000))

    with pytest.raises(ConfigError, match=r"shop\.sqlite cannot be read as a SQLite file: .+ Give another one\."):
        RunSql.open(database, processes=1)


def test_nothing_is_written_beside_a_sqlite_file(database):
    tool = RunSql.open(database, processes=1)
    run(tool, "SELECT count(*) FROM sales")
    asyncio.run(tool.aclose())

    assert [file.name for file in database.parent.iterdir()] == ["shop.sqlite"]
