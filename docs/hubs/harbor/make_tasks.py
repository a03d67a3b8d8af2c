"""Writes a Harbor task for each question of the almanac: python make_tasks.py FOLDER --limit 8.

The task `deep-research` beside this file is the first one and the model of the others.
"""

import argparse
import shutil
from pathlib import Path

from rubricem_agent.prompting import agent_prompt
from rubricem_env.env import query_of, shipped_toolbox
from rubricem_env.world import Question, load_questions, shipped_questions_path

TEMPLATE = Path(__file__).parent / "deep-research"
FIRST = "train-rivers-02"
HOW = """
# How to send a turn

Write each of your turns to a file and send it: `python /app/turn.py < FILE`. It prints what the tool of the turn \
found, or that the episode is over, which it is after your answer. Send one turn at a time; nothing but turns counts.
"""


def instruction(question: Question) -> str:
    """The task's text: the rules of the scaffold, the question, and how to send a turn."""
    rules = agent_prompt(shipped_toolbox().names)
    return f"{rules.system}\n{HOW}\n# The question\n\n{rules.opening(query_of(question)).user}\n"


def write_task(question: Question, folder: Path) -> None:
    """Write the task of one question; its files but for three are those of the model."""
    if folder != TEMPLATE:
        shutil.copytree(TEMPLATE, folder)
        config = (folder / "task.toml").read_text(encoding="utf-8").replace(FIRST, question.id)
        config = config.replace('"rubricem/deep-research"', f'"rubricem/deep-research-{question.id}"')
        (folder / "task.toml").write_text(config, encoding="utf-8")
    (folder / "instruction.md").write_text(instruction(question), encoding="utf-8")
    for part in ("environment", "tests"):
        (folder / part / "question.txt").write_text(question.question + "\n", encoding="utf-8")


def main() -> None:
    """Write the tasks."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--limit", type=int, default=None, help="how many questions; all by default")
    given = options.parse_args()
    questions = [each for each in load_questions(shipped_questions_path()) if each.split == "train"]
    for question in questions[: given.limit]:
        write_task(question, given.folder / question.id)


if __name__ == "__main__":
    main()
