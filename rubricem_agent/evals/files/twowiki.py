"""2WikiMultihopQA files: the official JSON array, its alias lines, and prediction files."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, JsonValue

from rubricem_agent.evals.example import Benchmark, Example, Gold
from rubricem_agent.evals.files.source import (
    UNCHECKED,
    Expectation,
    Place,
    Row,
    assemble,
    json_array,
    json_lines,
    read_row,
)
from rubricem_agent.evals.twowiki_full import GoldQuestion, Predictions
from rubricem_env.domain.base import Text


class TwoWikiGold(Gold):
    """The gold question with supporting facts and evidence, and the paragraphs that hold them."""

    question: GoldQuestion
    context: JsonValue


class _Row(Row):
    id: Text = Field(alias="_id", min_length=1)
    question: Text = Field(min_length=1)
    answer: Text = Field(min_length=1)
    answer_id: Text | None = None
    context: JsonValue = None
    supporting_facts: tuple[tuple[Text, int], ...]
    evidences: tuple[tuple[Text, Text, Text], ...]
    evidences_id: tuple[tuple[Text, Text, Text], ...] = ()


class _AliasRow(Row):
    id: Text = Field(alias="Q_id")
    aliases: tuple[Text, ...]
    demonyms: tuple[Text, ...]


def load(path: Path, *, expect: Expectation = UNCHECKED) -> Benchmark[TwoWikiGold]:
    """Questions for the agent, without the paragraphs; the rest in the gold. No official row count or hash is known."""
    rows = [read_row(place, _Row) for place in json_array(path)]
    gold = [TwoWikiGold(id=row.id, question=_gold_question(row), context=row.context) for row in rows]
    return assemble(path, [Example(id=row.id, prompt_text=row.question) for row in rows], gold=gold, expect=expect)


def load_aliases(path: Path) -> Mapping[str, frozenset[str]]:
    """Other names, demonyms included, by Wikidata id."""
    rows = [read_row(place, _AliasRow) for place in json_lines(path)]
    return {row.id: frozenset((*row.aliases, *row.demonyms)) for row in rows}


def load_predictions(path: Path) -> Predictions:
    """A prediction file: one object with answer, sp and evidence."""
    first, *_ = json_lines(path)
    return read_row(Place(str(path), first.content), Predictions)


def _gold_question(row: _Row) -> GoldQuestion:
    return GoldQuestion(
        id=row.id,
        answer=row.answer,
        answer_id=row.answer_id,
        supporting_facts=row.supporting_facts,
        evidences=row.evidences,
        evidences_id=row.evidences_id,
    )
