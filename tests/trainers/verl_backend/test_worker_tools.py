"""A worker's share of the tools' limits."""

from rubricem_agent.config import ToolsConfig, read_tools_config
from trainers.verl_backend.worker_tools import share_of

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
    # One limiter keeps the rates of all workers together.
    assert (share.google_search, share.snippet_search) == (whole.google_search, whole.snippet_search)
    assert share.mounted[0].concurrency == 2
    assert (share.budget.calls, share.budget.dollars) == (125, 2.5)


def test_a_share_is_at_least_one_and_no_limit_stays_none():
    share = share_of(ToolsConfig(), WORKERS)
    assert share.budget == ToolsConfig().budget
    assert share_of(ToolsConfig(), 1) == ToolsConfig()
