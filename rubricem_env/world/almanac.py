"""A whole world from one integer, in memory or as corpus.jsonl and questions.jsonl.

``python -m rubricem_env.world.almanac --seed 0 --out DIR`` writes both files, byte for byte the same on every machine.
`load_questions` reads questions; documents are read by `rubricem_env.tools.corpus_search`, as those of any corpus.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel

from rubricem_env.domain.errors import UsageError
from rubricem_env.domain.inputs import read_lines, validating
from rubricem_env.tools.corpus_search import Document
from rubricem_env.world.documents import Library, count_pages, write_hostile_pages, write_pages
from rubricem_env.world.entities import Entity, populate
from rubricem_env.world.names import LARGEST_WORLD, SMALLEST_WORLD, SPLITS
from rubricem_env.world.questions import Question, ask_questions

CORPUS_FILE = "corpus.jsonl"
QUESTIONS_FILE = "questions.jsonl"


def to_jsonl(records: Iterable[BaseModel]) -> bytes:
    """One record a line, ASCII only, fields in the order of the type."""
    return b"".join(json.dumps(record.model_dump(mode="json")).encode("ascii") + b"\n" for record in records)


def load_questions(path: Path) -> tuple[Question, ...]:
    """The questions of a file, with their truth, in its order."""
    questions = []
    way_out = "Correct the line, or write the file again with python -m rubricem_env.world.almanac."
    for where, line in read_lines(
        path, "a JSONL file, or write one with python -m rubricem_env.world.almanac --out DIR"
    ):
        with validating(f"{where} is not a Question", way_out):
            questions.append(Question.model_validate_json(line))
    return tuple(questions)


def shipped_corpus_path() -> Path:
    """The corpus of the default world, within the package."""
    return Path(str(files("rubricem_env.world") / "shipped" / CORPUS_FILE))


def shipped_questions_path() -> Path:
    """The questions of the default world, within the package."""
    return Path(str(files("rubricem_env.world") / "shipped" / QUESTIONS_FILE))


ENTITIES_PER_DOMAIN = 10
QUESTIONS_PER_DOMAIN = 15
DOCUMENTS = 410


class Almanac:
    """A world: its entities, its library of documents, and its questions with their truth."""

    def __init__(self, entities: tuple[Entity, ...], library: Library, questions: tuple[Question, ...]) -> None:
        self.entities = entities
        self.library = library
        self.questions = questions

    @classmethod
    def from_seed(
        cls,
        seed: int,
        *,
        entities_per_domain: int = ENTITIES_PER_DOMAIN,
        questions_per_domain: int = QUESTIONS_PER_DOMAIN,
        hostile: bool = False,
    ) -> "Almanac":
        """The same world for the same arguments, on every machine.

        Hostile pages come after the honest ones: they change no other document, and questions only by further traps.
        """
        entities = populate(seed, entities_per_domain)
        drafts = write_pages(seed, entities)
        if hostile:
            drafts += write_hostile_pages(seed, entities)
        library = Library(drafts, entities)
        return cls(entities, library, ask_questions(seed, library, questions_per_domain=questions_per_domain))

    @property
    def documents(self) -> tuple[Document, ...]:
        """What search may serve, in corpus order."""
        return self.library.documents

    def questions_of(self, split: str) -> tuple[Question, ...]:
        """The questions of train, validation or test."""
        if split not in SPLITS:
            raise UsageError(
                f"the almanac has no split {split!r}; it has train, validation and test. Use one of these."
            )
        return tuple(question for question in self.questions if question.split == split)

    def write(self, folder: Path) -> None:
        """Write corpus.jsonl and questions.jsonl into the folder, which is made if it is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CORPUS_FILE).write_bytes(to_jsonl(self.documents))
        (folder / QUESTIONS_FILE).write_bytes(to_jsonl(self.questions))


def largest_world_within(documents: int) -> int:
    """The most entities per domain whose honest documents are no more than this many."""
    fitting = [size for size in range(SMALLEST_WORLD, LARGEST_WORLD + 1) if count_pages(size) <= documents]
    if not fitting:
        least = count_pages(SMALLEST_WORLD)
        raise UsageError(f"--documents is {documents}; the smallest world has {least}. Use {least} or more.")
    return fitting[-1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a world and print what was written. Exit code 2 and one sentence on stderr for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m rubricem_env.world.almanac", description="Write a small world.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=DOCUMENTS, help="at most this many honest documents")
    parser.add_argument("--hostile", action="store_true", help="add pages that attack their reader")
    chosen = parser.parse_args(arguments)
    try:
        size = largest_world_within(chosen.documents)
        world = Almanac.from_seed(
            chosen.seed, entities_per_domain=size, questions_per_domain=size * 3 // 2, hostile=chosen.hostile
        )
    except UsageError as mistake:
        sys.stderr.write(f"{mistake}\n")
        return 2
    world.write(chosen.out)
    sys.stdout.write(f"{len(world.documents)} documents and {len(world.questions)} questions in {chosen.out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
