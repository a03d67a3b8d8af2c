"""Plays the agent's turns again; writes the trajectory, and the score of its answer as Harbor's reward.

Where the answer could not be scored, no reward is written: Harbor reports an error, and nobody counts a zero.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from rubricem_env.adapters.session import EpisodeSession, offline_env_spec, offline_scorer
from rubricem_env.domain.base import Stage
from rubricem_env.domain.trajectory import dump_trajectory, query_key

HERE = Path(__file__).parent
TURNS = Path(os.environ.get("RUBRICEM_TURNS", "/app/turns.jsonl"))
REWARD = Path(os.environ.get("RUBRICEM_REWARD", "/logs/verifier/reward.json"))
ENV_SPEC = offline_env_spec()


async def score() -> float | None:
    """The score of the answer, from 0 to 1; None where the judge gave none."""
    question = (HERE / "question.txt").read_text(encoding="utf-8").strip()
    query = ENV_SPEC.query(query_key(question))
    session = EpisodeSession(ENV_SPEC, query)
    turns = TURNS.read_text(encoding="utf-8").splitlines() if TURNS.exists() else []
    for turn in turns:
        if not session.is_over:
            await session.step(str(json.loads(turn)))
    session.abandon()
    REWARD.with_name("trajectory.json").write_text(dump_trajectory(session.trajectory) + "\n", encoding="utf-8")
    (judgement,) = await offline_scorer([query]).score([session.trajectory])
    return judgement.score(Stage.ANSWER)


if __name__ == "__main__":
    reward = asyncio.run(score())
    if reward is None:
        sys.exit("the judge gave no score for the answer.")
    REWARD.write_text(json.dumps({"reward": reward}), encoding="utf-8")
