"""Takes the next turn of the episode from standard input and prints what its search found: python turn.py < FILE.

The turns so far are the whole state. They are played again each time and find the same, because pages do not change.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from rubricem_env.adapters.session import EpisodeSession, offline_env_spec
from rubricem_env.domain.trajectory import query_key

HERE = Path(__file__).parent
TURNS = Path(os.environ.get("RUBRICEM_TURNS", "/app/turns.jsonl"))
ENV_SPEC = offline_env_spec()


async def play(text: str) -> str:
    """What the next turn brings."""
    question = (HERE / "question.txt").read_text(encoding="utf-8").strip()
    session = EpisodeSession(ENV_SPEC, ENV_SPEC.query(query_key(question)))
    turns = TURNS.read_text(encoding="utf-8").splitlines() if TURNS.exists() else []
    for turn in turns:
        if not session.is_over:
            await session.step(json.loads(turn))
    if session.is_over:
        return f"The episode is over: {session.trajectory.ending}. This turn was not taken."
    step = await session.step(text)
    with TURNS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(text) + "\n")
    return f"The episode is over: {session.trajectory.ending}." if step.is_over else step.observation


if __name__ == "__main__":
    sys.stdout.write(asyncio.run(play(sys.stdin.read())) + "\n")
