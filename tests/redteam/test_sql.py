"""Attacks through `run_sql`: a query that does anything but read the tables is refused or stopped, in one sentence.

Each is played against DuckDB over files and against a SQLite file; afterwards the tool still answers.
"""

import asyncio
import sqlite3

import pytest

from rubricem_env.domain.trajectory import ToolCall, ToolStatus
from rubricem_env.tools.failures import ToolFailure
from rubricem_env.tools.tables.run_sql import RunSql

WRITES = (
    "DELETE FROM sales",
    "INSERT INTO sales VALUES (9, 9)",
    "UPDATE sales SET amount = 0",
    "DROP TABLE sales",
    "CREATE TABLE mine AS SELECT 1",
    "CREATE TEMP VIEW mine AS SELECT 1",
    "ALTER TABLE sales ADD COLUMN x INTEGER",
    "WITH x AS (SELECT 1) DELETE FROM sales",
    "/* SELECT */ DROP TABLE sales",
    "SELECT 1; DROP TABLE sales",
    "SELECT 1; SELECT 2",
    "VACUUM INTO '{out}'",
    "VACUUM",
    "BEGIN",
)
OUTSIDE = (
    "ATTACH '{out}' AS other",
    "DETACH main",
    "PRAGMA database_list",
    "PRAGMA query_only = 0",
    "PRAGMA writable_schema = 1",
    "SELECT load_extension('/tmp/evil.so')",
)
DUCKDB = (
    "COPY sales TO '{out}'",
    "COPY (SELECT 1) TO '{out}' (FORMAT csv)",
    "EXPORT DATABASE '{out}'",
    "IMPORT DATABASE '{out}'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "FORCE INSTALL httpfs",
    "SET threads = 8",
    "SET GLOBAL enable_external_access = true",
    "RESET lock_configuration",
    "CALL pragma_version()",
    "CHECKPOINT",
    "PREPARE p AS SELECT 1",
    "EXPLAIN ANALYZE SELECT 1",
    "CREATE SECRET (TYPE s3)",
    "CREATE MACRO f() AS 1",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM READ_CSV_AUTO('{secret}')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_blob('{secret}')",
    "SELECT * FROM read_parquet('{secret}')",
    "SELECT * FROM read_json('{secret}')",
    "SELECT * FROM parquet_metadata('{secret}')",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM sqlite_scan('{secret}', 'x')",
    "CALL sqlite_attach('{secret}')",
    "SELECT * FROM '{secret}'",
    'SELECT * FROM "{secret}"',
    "FROM '{secret}'",
    "SELECT * FROM '../secret.csv'",
    "SELECT * FROM 'sales.csv'",
    "SELECT * FROM '{folder}/*.csv'",
    "SELECT * FROM 'https://example.org/x.csv'",
    "SELECT (SELECT count(*) FROM '{secret}')",
    "SELECT * FROM sales WHERE id IN (SELECT x FROM read_csv('{secret}'))",
    "WITH x AS (SELECT * FROM read_text('{secret}')) SELECT * FROM x",
    "SELECT * FROM sales UNION ALL SELECT * FROM '{secret}'",
    "SELECT * FROM sales, LATERAL (SELECT * FROM read_text('{secret}'))",
    "SELECT [x FOR x IN (SELECT list(content) FROM read_text('{secret}'))]",
    "DESCRIBE SELECT * FROM read_csv('{secret}')",
    "SUMMARIZE SELECT * FROM '{secret}'",
    "DESCRIBE TABLE '{secret}'",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('sales')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM pragma_database_list()",
    "SHOW ALL TABLES",
    "SHOW DATABASES",
    "SELECT current_setting('allowed_paths')",
    "SELECT getenv('HOME')",
    "SELECT getvariable('x')",
    "SELECT * FROM pg_catalog.pg_tables",
)
SQLITE = (
    "REINDEX",
    "ANALYZE",
    "SAVEPOINT x",
    "CREATE VIRTUAL TABLE x USING fts5(y)",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM pragma_table_info('sales')",
    "SELECT writefile('{out}', 'x')",
    "SELECT readfile('{secret}')",
    "SELECT * FROM sqlite_dbpage",
    "SELECT fts3_tokenizer('simple')",
    "COPY sales TO '{out}'",
    "INSTALL httpfs",
    "SELECT * FROM '{secret}'",
)
ENDLESS = (
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "WITH RECURSIVE r(n) AS (SELECT 'xxxxxxxxxxxxxxxx' UNION ALL SELECT n || n FROM r) SELECT max(length(n)) FROM r",
)
HUGE_DUCKDB = (
    "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range + b.range = 7",
    "SELECT list(range) FROM range(10000000000)",
    "SELECT length(repeat('a', 40000000000))",
)
STRANGE = (
    "SELECT " + "(" * 1_900 + "1" + ")" * 1_900,
    "SELECT " + "-" * 3_000 + "1",
    "SELECT 1 WHERE " + "NOT " * 900 + "true",
    "SELECT 'a\x00b'",
    "\x00",
    "SELECT '\ud800'",
    "SELECT " + "9" * 3_000,
    "SELECT 'عربي' || '日本' || '\u202e' || '\U0001f600'",
    "\N{NO-BREAK SPACE}SELECT 1",
    "'" * 999,
    "SELECT \N{LEFT DOUBLE QUOTATION MARK}x\N{RIGHT DOUBLE QUOTATION MARK}",
)
ENGINES = ("DuckDB", "SQLite")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "tables").mkdir()
    (folder / "tables" / "sales.csv").write_text("id,amount\n1,2.5\n2,3\n")
    (folder / "secret.csv").write_text("password\nhunter2\n")
    connection = sqlite3.connect(folder / "tables.sqlite")
    connection.executescript("CREATE TABLE sales (id INTEGER, amount REAL); INSERT INTO sales VALUES (1, 2.5), (2, 3)")
    connection.close()
    return folder


@pytest.fixture(scope="module", params=ENGINES)
def tool(request, place):
    if request.param == "DuckDB":
        pytest.importorskip("duckdb")
    opened = RunSql.open(place / ("tables" if request.param == "DuckDB" else "tables.sqlite"), processes=1, seconds=3.0)
    yield opened
    asyncio.run(opened.aclose())


def attempt(tool, query):
    """The text of the result, or the failure."""
    try:
        result, _ = asyncio.run(tool.answer(ToolCall(name="run_sql", query=query)))
    except ToolFailure as failure:
        return failure
    return result.snippets[0].text


def still_answers(tool):
    return attempt(tool, "SELECT sum(amount) AS total FROM sales") == "1 row.\ntotal\n5.5"


def is_of(tool, engine):
    return engine in tool.spec.description


def test_a_query_that_does_more_than_read_the_tables_is_refused_in_one_sentence(tool, place):
    own = DUCKDB if is_of(tool, "DuckDB") else SQLITE
    places = {"out": place / "out", "secret": place / "secret.csv", "folder": place}
    before = {file: file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file()}

    for written in (*WRITES, *OUTSIDE, *own):
        query = written.format_map(places)
        failure = attempt(tool, query)
        assert isinstance(failure, ToolFailure), (query, failure)
        assert failure.status in (ToolStatus.BLOCKED, ToolStatus.ERROR), query
        assert "hunter2" not in str(failure), query
        assert "Traceback" not in str(failure), query
        assert "\n" not in str(failure), query
        assert str(failure).endswith("."), query
    assert still_answers(tool)
    assert {file: file.read_bytes() for file in sorted(place.rglob("*")) if file.is_file()} == before


def test_what_writes_or_leaves_the_engine_is_said_to_be_refused(tool):
    for query in (*WRITES[:8], "PRAGMA database_list", "ATTACH 'x' AS y"):
        assert attempt(tool, query).status is ToolStatus.BLOCKED, query


@pytest.mark.parametrize("query", ENDLESS)
def test_a_recursion_without_end_is_stopped_and_the_tool_goes_on(tool, query):
    failure = attempt(tool, query)

    assert isinstance(failure, ToolFailure)
    assert still_answers(tool)


@pytest.mark.parametrize("query", HUGE_DUCKDB)
def test_ten_billion_rows_are_stopped_and_the_tool_goes_on(tool, query):
    if is_of(tool, "SQLite"):
        pytest.skip("range is DuckDB's")
    failure = attempt(tool, query)

    assert isinstance(failure, ToolFailure)
    assert still_answers(tool)


def test_ten_million_rows_are_shown_to_their_limit(tool):
    query = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10000000) SELECT n FROM r"
    if is_of(tool, "DuckDB"):
        query = "SELECT range AS n FROM range(10000000)"
    shown = attempt(tool, query)

    assert shown.startswith("The first 50 rows; there are more")
    assert len(shown.splitlines()) == 52


def test_a_result_has_a_limit_of_characters(tool):
    wide = "SELECT " + ", ".join(f"'{'x' * 30}' AS c{number}" for number in range(60))

    assert len(attempt(tool, wide)) <= 4_000


@pytest.mark.parametrize("query", STRANGE)
def test_a_strange_query_gets_a_result_or_one_sentence(tool, query):
    answer = attempt(tool, query)

    assert "Traceback" not in str(answer)
    assert isinstance(answer, str) or "\n" not in str(answer)
    assert still_answers(tool)


def test_a_table_in_the_way_of_the_check_opens_no_file(tool, place):
    """A name that the query defines is no file, wherever else the name stands."""
    secret = place / "secret.csv"
    query = f'WITH "{secret}" AS (SELECT 1 AS x) SELECT * FROM (SELECT * FROM "{secret}")'
    other = f'SELECT * FROM "{secret}" WHERE 1 IN (WITH "{secret}" AS (SELECT 1 AS x) SELECT x FROM "{secret}")'

    assert "hunter2" not in str(attempt(tool, query))
    assert isinstance(attempt(tool, other), ToolFailure)
    assert "hunter2" not in str(attempt(tool, other))
