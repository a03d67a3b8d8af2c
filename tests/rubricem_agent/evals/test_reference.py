import re

from rubricem_agent.evals.scores import reference_rows


def test_the_papers_averages_are_the_means_of_their_rows() -> None:
    table = reference_rows()["rubricem_table1_longform"]

    assert isinstance(table, dict)
    # 49.3, 74.5, 47.8 and 50.3 average 55.475.
    assert table["rows"]["RubricEM-8B (RL, 1400 steps)"] == [49.3, 74.5, 47.8, 50.3, 55.5]  # type: ignore[index,call-overload]


def test_a_source_names_the_literature_and_not_how_somebody_came_to_read_it() -> None:
    sources = [table["source"] for table in reference_rows().values() if isinstance(table, dict)]

    assert sources[0] == "arXiv 2605.10899, Table 1"
    assert not [source for source in sources if re.search(r"stored|index id|\bmy\b|\b\d{8,}\b", str(source))]
