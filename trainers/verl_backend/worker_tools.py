"""The tools of one rollout worker: its share of what the run may spend on them."""

from rubricem_agent.config import ToolsConfig


def share_of(tools: ToolsConfig, workers: int) -> ToolsConfig:
    """Budget and mounted servers divided among `workers` processes; at least 1 of each.

    The search engines' rates stay whole: all workers take their turns from one limiter, the judge service's or the tool
    server's.
    """
    mounted = [
        server.model_copy(update={"concurrency": max(1, server.concurrency // workers)}) for server in tools.mounted
    ]
    return tools.model_copy(update={"budget": tools.budget.share(workers), "mounted": tuple(mounted)})
