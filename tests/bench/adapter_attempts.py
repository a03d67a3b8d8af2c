"""Four attempts at one question, 15 turns in all, written beforehand: the writer's time is not the adapters'."""

import asyncio
import re

from docs.adapters.tutor import ATTEMPTS, Tutor, tutored_query, tutored_questions
from rubricem_env.domain.trajectory import ToolCall
from rubricem_env.env.episode import Continue, Episode, Finished
from rubricem_env.env.step import advance
from rubricem_env.world.offline import shipped_toolbox

QUERY = tutored_query()
_CALL = re.compile(r'<call_tool name="(\w+)"[^>]*>(.*?)</call_tool>', re.DOTALL)


async def _record(place):
    write, episode, turns = Tutor(tutored_questions()[QUERY.question], place), Episode(QUERY), []
    reply = Continue(QUERY.question)
    while not isinstance(reply, Finished):
        turns.append(write(reply.observation))
        reply = await advance(episode, shipped_toolbox(), turns[-1])
    return tuple(turns)


ATTEMPTS_MADE = [asyncio.run(_record(place)) for place in range(len(ATTEMPTS))]


async def search(text):
    """What an environment of the usual kind makes of a turn: a pattern, a call, a message; None where it made none."""
    found = _CALL.search(text)
    if found is None:
        return None
    result = await shipped_toolbox().call(ToolCall(name=found[1], query=found[2]))
    return "<tool_output>" + "\n".join(snippet.text for snippet in result.snippets) + "</tool_output>"
