"""A tiny policy that has learnt one letter by heart, in the stages of writing; and briefs for such letters."""

from pathlib import Path

from tests.learnt_by_heart import learn_by_heart
from tests.letters import LETTER, brief


def learn_letter(folder: Path, text: str = LETTER) -> Path:
    """Train the policy to write the letter, or another text, and save it; returns the folder."""
    return learn_by_heart(folder, text)


def write_briefs(file: Path, occasions: tuple[str, ...] = ("tea", "dinner")) -> Path:
    """Two briefs or more, each with a rubric of its data set."""
    briefs = [brief(occasion) for occasion in occasions]
    file.write_text("\n".join(brief.model_dump_json() for brief in briefs))
    return file
