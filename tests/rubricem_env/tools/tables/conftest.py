"""The same two tables as files of a folder, which DuckDB reads, and as a SQLite file."""

import sqlite3
from pathlib import Path

import pytest

SHOPS = [(1, "North", "Oslo"), (2, "South", "Rome")]
SALES = [(1, 1, 2.5), (2, 1, 3.0), (3, 2, 4.25)]


def write_csv(path: Path, head: str, rows: list[tuple[object, ...]]) -> None:
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n", encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "shop"
    place.mkdir()
    write_csv(place / "shops.csv", "id,name,city", SHOPS)
    write_csv(place / "sales.csv", "id,shop,amount", SALES)
    return place


@pytest.fixture
def database(tmp_path):
    place = tmp_path / "shop.sqlite"
    connection = sqlite3.connect(place)
    connection.executescript(
        "CREATE TABLE shops (id INTEGER, name TEXT, city TEXT);"
        "CREATE TABLE sales (id INTEGER, shop INTEGER, amount REAL)"
    )
    connection.executemany("INSERT INTO shops VALUES (?, ?, ?)", SHOPS)
    connection.executemany("INSERT INTO sales VALUES (?, ?, ?)", SALES)
    connection.commit()
    connection.close()
    return place
