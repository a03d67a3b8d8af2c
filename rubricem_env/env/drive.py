"""Turns the episode's crank once: the one place where an emission meets the tools."""

from rubricem_env.env.episode import CallTool, Continue, Episode, Finished
from rubricem_env.tools.base import Toolbox


async def advance(episode: Episode, toolbox: Toolbox, text: str) -> Continue | Finished:
    """Give the policy's text to the episode, make the call that it asks for, and return what the policy reads next."""
    reply = episode.emit(text)
    if isinstance(reply, CallTool):
        return episode.observe(await toolbox.call(reply.call))
    return reply
