from rubricem_agent.evals.benchmarks.researchqa import parse_batch
from rubricem_agent.evals.reply_parsing import Unparsed


def test_a_batch_needs_one_line_per_item_and_blank_lines_do_not_count() -> None:
    assert parse_batch(" Mostly \r\n\n Barely", size=2) == ["Mostly", "Barely"]
    assert isinstance(parse_batch("Mostly", size=2), Unparsed)
