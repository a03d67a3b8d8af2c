"""The tables of a world: gauging stations, their readings and permits, each with an outdated or doubled copy."""

import sqlite3
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from rubricem_env.world.draws import draw_index, open_stream, pick
from rubricem_env.world.names import SPLITS, Split, name_slots

YEARS = (2021, 2022)
RIVERS = 10
_PER_REGION = 5
"""Rivers of a region, about; each split has two regions or more."""
_STATIONS = 2
"""Stations on each river."""
_READINGS = 3
_PERMITS = 3
"""Rows of each station or river in each year."""
Cell = int | float | str
Row = tuple[Cell, ...]
COLUMNS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "stations": ("id INTEGER", "river TEXT", "region TEXT"),
        "stations_2019": ("id INTEGER", "river TEXT", "region TEXT"),
        "readings": ("id INTEGER", "station INTEGER", "year INTEGER", "flow REAL", "unit TEXT", "status TEXT"),
        "readings_merged": ("id INTEGER", "station INTEGER", "year INTEGER", "flow REAL", "unit TEXT", "status TEXT"),
        "permits": ("id INTEGER", "river TEXT", "year INTEGER", "volume INTEGER", "unit TEXT", "status TEXT"),
        "permits_2019": ("id INTEGER", "river TEXT", "year INTEGER", "volume INTEGER", "unit TEXT", "status TEXT"),
    }
)
"""The columns of each table with their types."""


class River(NamedTuple):
    """A river with its region; both names belong to the split."""

    name: str
    region: str
    split: Split


class TableRows(NamedTuple):
    """What a world's tables hold."""

    rivers: tuple[River, ...]
    rows: Mapping[str, tuple[Row, ...]]
    """By the name of the table."""

    def loaded(self) -> sqlite3.Connection:
        """The tables in memory, in SQLite."""
        connection = sqlite3.connect(":memory:")
        fill(connection, self.rows)
        return connection


def fill(connection: sqlite3.Connection, rows: Mapping[str, Sequence[Row]]) -> None:
    """Create the tables and insert their rows."""
    for table, columns in COLUMNS.items():
        connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows[table])
    connection.commit()


def draw_rows(seed: int, rivers: int = RIVERS) -> TableRows:
    """The same rows for the same arguments, on every machine. Two splits have a fifth of the rivers each.

    Raises:
        UsageError: there are fewer than 9 rivers or more than 180, or the seed is negative.
    """
    rng = open_stream(seed, "tables")
    names = name_slots(seed, rivers)
    regions = max(2, rivers // _PER_REGION // 2)
    gauged = tuple(
        River(slot.name, names["towns", split][number % min(regions, len(names["towns", split]))].name, split)
        for split in SPLITS
        for number, slot in enumerate(names["rivers", split])
    )
    stations = [(river.name, river.region) for river in gauged for _ in range(_STATIONS)]
    current = tuple((number, *station) for number, station in enumerate(stations, start=1))
    readings = _readings(rng, len(current))
    permits = _permits(rng, gauged)
    return TableRows(
        gauged,
        MappingProxyType(
            {
                "stations": current,
                "stations_2019": _outdated_stations(rng, current, gauged),
                "readings": readings,
                "readings_merged": _doubled(readings),
                "permits": permits,
                "permits_2019": _outdated_permits(rng, permits),
            }
        ),
    )


def _readings(rng: np.random.Generator, stations: int) -> tuple[Row, ...]:
    """The readings of every station; a third is in litres, a third is void."""
    rows: list[Row] = []
    for station in range(1, stations + 1):
        for year in YEARS:
            for number in range(_READINGS):
                tenths = 11 + draw_index(rng, 889)
                in_litres = number == draw_index(rng, _READINGS)
                flow, unit = (tenths * 100.0, "l/s") if in_litres else (tenths / 10, "m3/s")
                status = "void" if number == 0 and rng.random() < 0.8 else "ok"
                rows.append((len(rows) + 1, station, year, flow, unit, status))
    return tuple(rows)


def _permits(rng: np.random.Generator, rivers: Sequence[River]) -> tuple[Row, ...]:
    rows: list[Row] = []
    for river in rivers:
        for year in YEARS:
            for number in range(_PERMITS):
                thousands = 2 + draw_index(rng, 97)
                in_megalitres = number == draw_index(rng, _PERMITS)
                volume, unit = (thousands, "ML") if in_megalitres else (thousands * 1_000, "m3")
                status = "revoked" if number == 0 and rng.random() < 0.8 else "valid"
                rows.append((len(rows) + 1, river.name, year, volume, unit, status))
    return tuple(rows)


def _outdated_stations(rng: np.random.Generator, current: Sequence[Row], rivers: Sequence[River]) -> tuple[Row, ...]:
    """The stations as they were: a third was in another region, and a fifth was not there."""
    rows: list[Row] = []
    for number, name, region in current:
        moved, missing = rng.random() < 0.34, rng.random() < 0.2
        others = sorted({river.region for river in rivers} - {str(region)})
        rows += [] if missing else [(number, name, pick(rng, others) if moved else region)]
    return tuple(rows)


def _doubled(readings: Sequence[Row]) -> tuple[Row, ...]:
    """The readings with every second one a second time, as if two files had been put together."""
    return (*readings, *readings[::2])


def _outdated_permits(rng: np.random.Generator, permits: Sequence[Row]) -> tuple[Row, ...]:
    """The permits with other volumes."""
    rows: list[Row] = []
    for number, river, year, volume, unit, status in permits:
        changed = int(volume) * (2 + draw_index(rng, 3))
        rows.append((number, river, year, changed, unit, status))
    return tuple(rows)
