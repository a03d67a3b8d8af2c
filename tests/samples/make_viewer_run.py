"""Records the small run that the viewer is tested with and shown by: tests/samples/viewer_run.

    python tests/samples/make_viewer_run.py

A real run of the local trainer, four steps in the almanac with the tiny policy (`python -m research.tiny_policy`
makes it), some two minutes on one core. Its bank begins with lessons of the almanac's own script, so that even so
short a run shows some. Weights and checkpoints are left out. Another policy writes other words, and tests of the page
name some of them: look at those after recording anew.
"""

import asyncio
import copy
import itertools
import shutil
import sys
import tempfile
from pathlib import Path

from rubricem_env.domain.judgement import Provenance
from rubricem_env.domain.reflection import Reflection, ReflectionScore
from rubricem_env.domain.trajectory import query_key
from rubricem_env.world.lessons import lesson_of
from rubricem_records.bank.bank_items import BankItem
from trainers.local.run import Run, make_run
from trainers.local.settings import LocalConfig
from trainers.local.ssgrpo import train

FOLDER = Path(__file__).parent / "viewer_run"
POLICY = Path("runs/tiny_policy/model")
KEPT = ("config.json", "metrics.jsonl", "record")
QUESTIONS = 12


def main() -> None:
    """Train, and keep what is looked at."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "almanac"
        config = LocalConfig(
            policy=POLICY,
            out=out,
            steps=4,
            questions_per_step=2,
            group_size=4,
            window=2,
            evaluate_every=2,
            checkpoint_every=4,
            seed=3,
        )
        run = make_run(config)
        fill_bank(run)
        asyncio.run(train(run))
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir()
        for name in KEPT:
            source = out / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, FOLDER / name)
    settings = FOLDER / "config.json"
    settings.write_text(settings.read_text(encoding="utf-8").replace(str(out), "runs/almanac"), encoding="utf-8")
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    sys.stdout.write(f"{FOLDER}: {size:,} bytes\n")


def fill_bank(run: Run) -> None:
    """Lessons of the questions that the run will meet and of some others, one of each standing."""
    coming = itertools.islice(copy.deepcopy(run.curriculum), run.config.window)
    own = [key for batch in coming for key in batch.keys]
    others = [key for key in run.train if key not in own]
    items = [_write(run, key, number) for number, key in enumerate([*own, *others][:QUESTIONS])]
    _write(run, own[0], QUESTIONS, more="Read the newest edition first.")
    run.bank.change(items[-1].id, "quarantined", "too general")
    run.bank.change(items[-2].id, "removed", "repeats another lesson")


def _write(run: Run, key: str, number: int, *, more: str = "") -> BankItem:
    lesson = lesson_of(run.truth[key])
    question = run.train[key].question
    written = run.bank.write(
        Reflection(
            query_key=query_key(question),
            question=question,
            rubrics=lesson.rubrics,
            takeaways=" ".join(filter(None, (lesson.takeaways, more))),
            score=ReflectionScore(diagnosis=0.9 - number / 20, specificity=0.8, scope=0.3 + number / 20),
            provenance=Provenance(step=0, model="almanac script"),
        )
    )
    if not isinstance(written, BankItem):
        raise SystemExit(f"the bank refused the lesson of {question!r}: {written.sentence}")
    return written


if __name__ == "__main__":
    main()
