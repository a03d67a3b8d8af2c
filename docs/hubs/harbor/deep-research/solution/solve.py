"""Answers the question as the almanac's script does, turn by turn, through the command that agents use."""

import os
import subprocess
import sys
from pathlib import Path

from rubricem_env.world import AlmanacTeacher, load_questions, shipped_questions_path

APP = Path(os.environ.get("RUBRICEM_APP", "/app"))

if __name__ == "__main__":
    asked = (APP / "question.txt").read_text(encoding="utf-8").strip()
    teacher = AlmanacTeacher(next(each for each in load_questions(shipped_questions_path()) if each.question == asked))
    observations: list[str] = []
    while not (observations and observations[-1].startswith("The episode is over")):
        turn = teacher.turn(observations)
        taken = subprocess.run(
            [sys.executable, APP / "turn.py"], input=turn, capture_output=True, text=True, check=True, encoding="utf-8"
        )
        observations.append(taken.stdout.removesuffix("\n"))
