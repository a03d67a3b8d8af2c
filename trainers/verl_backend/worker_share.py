"""What one of several rollout workers may ask of the search engines: its share of what the run may."""

from rubricem_agent.config.tools import RateConfig, ToolsConfig


def share_of(tools: ToolsConfig, workers: int) -> ToolsConfig:
    """Rates and ceilings divided among `workers` processes that know nothing of each other; at least one of each.

    A server of tools has one count for all that ask it, so what stands in `remote` stays as it is.
    """
    google, snippets, budget = tools.google_search, tools.snippet_search, tools.budget
    return tools.model_copy(
        update={
            "google_search": google.model_copy(update={"rates": _rates(google.rates, workers)}),
            "snippet_search": snippets.model_copy(update={"rates": _rates(snippets.rates, workers)}),
            "budget": budget.model_copy(
                update={
                    "calls": _part(budget.calls, workers),
                    "dollars": None if budget.dollars is None else budget.dollars / workers,
                }
            ),
            "mounted": tuple(
                one.model_copy(update={"concurrency": max(1, one.concurrency // workers)}) for one in tools.mounted
            ),
        }
    )


def _rates(rates: RateConfig, workers: int) -> RateConfig:
    return rates.model_copy(
        update={
            "concurrency": max(1, rates.concurrency // workers),
            "requests_per_minute": _part(rates.requests_per_minute, workers),
            "tokens_per_minute": _part(rates.tokens_per_minute, workers),
        }
    )


def _part(whole: int | None, workers: int) -> int | None:
    return None if whole is None else max(1, whole // workers)
