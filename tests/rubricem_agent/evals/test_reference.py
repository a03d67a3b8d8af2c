from rubricem_agent.evals.reference import reference_rows


def test_the_papers_averages_are_the_means_of_their_rows() -> None:
    table = reference_rows()["rubricem_table1_longform"]

    assert isinstance(table, dict)
    # 49.3, 74.5, 47.8 and 50.3 average 55.475.
    assert table["rows"]["RubricEM-8B (RL, 1400 steps)"] == [49.3, 74.5, 47.8, 50.3, 55.5]  # type: ignore[index,call-overload]
