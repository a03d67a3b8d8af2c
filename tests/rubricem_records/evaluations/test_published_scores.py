import re

from rubricem_agent.evals.suite import SUITE
from rubricem_records.evaluations.published_scores import published_tables

TABLES = published_tables([benchmark.title for benchmark in SUITE.values()])


def test_the_papers_averages_are_the_means_of_their_rows() -> None:
    (row,) = [row for row in TABLES[0].rows if row.system == "RubricEM-8B (RL, 1400 steps)"]

    # 49.3, 74.5, 47.8 and 50.3 average 55.475.
    assert row.values == (49.3, 74.5, 47.8, 50.3, 55.5)


def test_a_source_names_the_literature_and_not_how_somebody_came_to_read_it() -> None:
    sources = [table.source for table in TABLES]

    assert sources[0] == "arXiv 2605.10899, Table 1"
    assert not [source for source in sources if re.search(r"stored|index id|\bmy\b|\b\d{8,}\b", source)]
