"""Questions with checkable answers about documents that people wrote: Python's enhancement proposals.

    git clone https://github.com/python/peps
    rubricem corpus build peps/peps -o runs/peps/index
    python -m research.document_questions peps/peps --out runs/peps/questions.jsonl
    rubricem eval own --data runs/peps/questions.jsonl --tools runs/peps/index --policy local:MODEL

Each proposal begins with a header, whose fields are the answers: the version of Python, the year, the first author.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rubricem_env.domain.errors import UsageError
from rubricem_records.files.atomic_files import write_atomic
from trainers.settings import run_command

_YEAR = re.compile(r"\b(\d{4})\b")
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
_CONTACT = re.compile(r"\s*<[^>]*>")


class PepHeader(NamedTuple):
    """The header of a proposal."""

    number: int
    title: str
    author: str
    """The first one, without an address."""
    year: str
    version: str
    """Empty where the header names none, or several."""

    def questions(self) -> Iterator[dict[str, object]]:
        """The lines of the file, as `rubricem eval own` reads them."""
        name = f"the Python enhancement proposal {self.number}, “{self.title}”"
        asked = {
            "version": (f"For which version of Python is {name}?", [self.version, f"Python {self.version}"]),
            "year": (f"In which year was {name}, created?", [self.year]),
            "author": (f"Who is the first author of {name}?", [self.author]),
        }
        for kind, (question, answers) in asked.items():
            if answers[0]:
                yield {
                    "id": f"pep-{self.number:04}-{kind}",
                    "question": question,
                    "answer": answers,
                    "source": f"pep-{self.number:04}",
                }


def read_proposal(path: Path) -> PepHeader | None:
    """The header of a file; None where it lacks what each proposal has."""
    header = HeaderParser().parsestr(path.read_text(encoding="utf-8", errors="replace"))
    number, title, created = header.get("PEP", ""), header.get("Title", ""), _YEAR.search(header.get("Created", ""))
    author = _CONTACT.sub("", header.get("Author", "").partition(",")[0]).strip()
    if not (number.isdigit() and title and created and author) or "@" in author:
        return None
    version = header.get("Python-Version", "").strip()
    return PepHeader(
        int(number), " ".join(title.split()), author, created[1], version if _VERSION.fullmatch(version) else ""
    )


def draw_questions(folder: Path, *, count: int, seed: int) -> list[dict[str, object]]:
    """As many questions of each kind as of the others, drawn from the proposals of a folder.

    Raises:
        UsageError: the folder has too few.
    """
    proposals = [read_proposal(path) for path in sorted(folder.glob("pep-[0-9]*.rst"))]
    rng = np.random.default_rng(seed)
    every = [row for proposal in proposals if proposal is not None for row in proposal.questions()]
    drawn: list[dict[str, object]] = []
    kinds = ("version", "year", "author")
    for place, kind in enumerate(kinds):
        rows = [row for row in every if str(row["id"]).endswith(kind)]
        share = count // len(kinds) + (place < count % len(kinds))
        if len(rows) < share:
            raise UsageError(
                f"{folder} has {len(rows)} proposals with a {kind}, and {share} are wanted. Name the folder peps of a "
                "clone of github.com/python/peps, or lower --count."
            )
        drawn += [rows[index] for index in sorted(rng.choice(len(rows), share, replace=False).tolist())]
    return drawn


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the questions. A user error gives exit code 2 and one sentence on stderr."""
    parser = argparse.ArgumentParser(prog="python -m research.document_questions", description="Write questions.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)

    def make() -> None:
        rows = draw_questions(chosen.folder, count=chosen.count, seed=chosen.seed)
        write_atomic(chosen.out, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        sys.stdout.write(f"{len(rows)} questions: {chosen.out}\n")

    return run_command("document_questions", make)


if __name__ == "__main__":
    sys.exit(main())
