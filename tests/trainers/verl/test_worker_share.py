"""The workers of a run together ask no more of the search engines than one process would."""

from rubricem_agent.config import ToolsConfig, read_tools_config
from trainers.verl_backend.settings import share_of

WORKERS = 8


def test_eight_shares_are_no_more_than_the_whole():
    whole = read_tools_config(
        {
            "backend": "web",
            "budget": {"calls": 1_001, "dollars": 20.0},
            "mounted": ({"name": "notes", "url": "http://127.0.0.1:1/mcp", "concurrency": 17},),
        }
    )
    share = share_of(whole, WORKERS)
    for before, after in (
        (whole.google_search.rates, share.google_search.rates),
        (whole.snippet_search.rates, share.snippet_search.rates),
    ):
        assert WORKERS * after.requests_per_minute <= before.requests_per_minute
        assert after.requests_per_minute >= before.requests_per_minute // WORKERS
    assert (share.google_search.rates.concurrency, share.mounted[0].concurrency) == (8, 2)
    assert (share.budget.calls, share.budget.dollars) == (125, 2.5)


def test_nobody_is_left_with_nothing_and_no_ceiling_stays_none():
    share = share_of(ToolsConfig(), WORKERS)
    assert share.snippet_search.rates.concurrency == 1
    assert share.budget == ToolsConfig().budget
    assert share.google_search.rates.tokens_per_minute is None


def test_one_worker_has_it_all():
    assert share_of(ToolsConfig(), 1) == ToolsConfig()
